"""The copy that is kept by a rule, whatever the order in which copies are read."""

from __future__ import annotations

import multiprocessing
import os
import signal
from typing import TYPE_CHECKING

import msgspec
import pytest

from krowlspider.corpus.build import Copy, Finisher, clusters
from krowlspider.corpus.copies.duplicates import DuplicateIndex, RankedCopies
from krowlspider.corpus.copies.fingerprints import fingerprints
from krowlspider.corpus.copies.versions import ALL
from krowlspider.corpus.folder import LINES, Folder, Slice, Summary, read_lines, write_lines
from krowlspider.corpus.record import Fetch, Line
from tests.corpus.warcs import prose

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# URL, day, text and canonical URL.
Given = tuple[str, int, str, str]
TEXT = prose(1, 500)
_SPAWN = multiprocessing.get_context("spawn")
# Near to the text, and not the same.
NEAR = TEXT.replace("village", "town", 1)
A, B, C = "http://a.example/long", "http://b.example/", "http://c.example/longest"
# B, not in normal form.
OTHER_B = "http://B.example:80/"


def prepared(path: Path, pages: Sequence[Given]) -> Folder:
    """Return a folder in which workers have read a WARC file for each page."""
    folder = Folder(path)
    folder.begin({})
    for number, (url, day, text, canonical) in enumerate(pages):
        marks = fingerprints(text)
        record = {"url": url, "date": f"2026-01-{day:02}T00:00:00Z", "canonical": canonical or None}
        raw = msgspec.Raw(msgspec.json.encode(record))
        fetch = Fetch(record["date"] or "", f"urn:{number}", "")
        line = Line(0, 7, url, "en", len(text), *marks, raw, fetch=fetch)
        part = Slice(f"{number:03}.warc", 0)
        write_lines(folder.work / (part.name + LINES), [msgspec.json.encode(line)])
        folder.hand_over(part, Summary())
    return folder


def finish(folder: Folder, keep: str, kill_after: int | None = None) -> None:
    """Add all slices, choose and write; with ``kill_after`` pages chosen, kill this process."""
    index = DuplicateIndex(folder.index, 0.7)
    copies = RankedCopies(index, keep, ALL, exact=True)
    parts = [Slice(path.name.partition("-")[0], 0) for path in sorted(folder.work.glob("*.json"))]
    for part in parts:
        if not copies.has(part):
            copies.add(part, folder.work)
    for number, _ in enumerate(copies.choose(), 1):
        if number == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
    for part in parts:
        Finisher(folder, copies, "jsonl", None).finish(part, folder.ready(part) or Summary(), 0)
    index.close()


def _finish_in(path: Path) -> None:
    finish(Folder(path), "shortest", kill_after=3)


def kept(folder: Folder) -> list[str]:
    shards = sorted(folder.data.iterdir())
    return [msgspec.json.decode(line)["url"] for path in shards for line in read_lines(path)]


@pytest.mark.parametrize(
    ("keep", "pages", "expected"),
    [
        ("oldest", [(A, 3), (B, 1), (C, 2)], B),
        ("oldest", [(A, 2), (B, 3), (C, 1)], C),
        ("shortest", [(A, 1), (C, 2), (B, 3)], B),
        # Of URLs with the same length, the older one.
        ("shortest", [(A, 2), (C, 1), (A[:-1] + "x", 1)], A[:-1] + "x"),
        # A page that others name, and that names none.
        ("canonical", [(A, 1, B), (C, 2), (B, 3)], B),
        # A page that names itself.
        ("canonical", [(A, 1), (C, 2, "http://d/"), (OTHER_B, 3, B)], OTHER_B),
        # None is canonical: one that names no other, or else the oldest.
        ("canonical", [(A, 1, "http://d.example/"), (B, 2), (C, 3)], B),
        ("canonical", [(A, 3, B), (B, 2, A), (C, 4, B)], B),
    ],
)
def test_a_rule_keeps_its_copy(
    tmp_path: Path, keep: str, pages: list[tuple[str, int, str]], expected: str
) -> None:
    """The copies name the one that is kept, be it read before them or after."""
    given = [
        (url, day, text, *others, "")[:4]
        for (url, day, *others), text in zip(pages, (TEXT, NEAR, TEXT), strict=True)
    ]
    folder = prepared(tmp_path, given)
    finish(folder, keep)
    assert kept(folder) == [expected]
    place = next(n for n, page in enumerate(pages) if page[0] == expected)
    found = [msgspec.json.decode(line, type=Copy) for line in clusters(folder)]
    assert {each.url for each in found} == {page[0] for page in pages} - {expected}
    assert {each.kept for each in found} == {f"{place:03}.warc:7"}
    folder.close()


def family(number: int) -> list[Given]:
    """Return copies, exact and near ones, whose days and lengths do not follow their order."""
    text = prose(number, 300)
    texts = [text, text.replace("village", "town", 1), text, text.replace("paper", "pulp", 1)]
    return [
        (f"http://{number}.example/{'x' * (n * 5 % 4)}", n * 7 % 4 + 1, each, "")
        for n, each in enumerate(texts)
    ]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_kills_while_copies_are_chosen_change_nothing(tmp_path: Path) -> None:
    """kill -9 after each third page: the copies kept, and their clusters, are the same."""
    pages = [page for number in range(8) for page in family(number)]
    whole, folder = prepared(tmp_path / "whole", pages), prepared(tmp_path / "killed", pages)
    finish(whole, "shortest")
    kills = 0
    while True:
        # LevelDB's threads do not survive a fork.
        child = _SPAWN.Process(target=_finish_in, args=(folder.path,))
        folder.close()
        child.start()
        child.join()
        folder = Folder(folder.path)
        if child.exitcode != -signal.SIGKILL:
            break
        kills += 1
    assert (child.exitcode, kills) == (0, len(pages) // 3)
    assert kept(folder) == kept(whole)
    assert len(kept(whole)) < len(pages) // 2
    assert list(clusters(folder)) == list(clusters(whole))
    whole.close()
    folder.close()
