"""Versions of a URL: what changed is in the corpus, and what did not change is there once."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest

from krowlspider.corpus.build import Finisher
from krowlspider.corpus.copies.duplicates import FIRST, DuplicateIndex, FirstCopies, RankedCopies
from krowlspider.corpus.copies.fingerprints import fingerprints
from krowlspider.corpus.copies.versions import ALL, LAST
from krowlspider.corpus.folder import Folder, Slice, Summary, read_lines
from krowlspider.corpus.quality.rules import Rules, read_rules
from krowlspider.corpus.record import CorpusRecord, Refusal
from krowlspider.corpus.worker import PageChoice, SliceReader, Task, WorkerTask
from tests.corpus.warcs import prose, response, write

if TYPE_CHECKING:
    from pathlib import Path


A, B = "http://a.example/", "http://b.example/"
NOAI = "Content-Type: text/html\r\nX-Robots-Tag: noai"


class Made(NamedTuple):
    """The days of the records, each with that of its previous version, and why others are not
    records, by day."""

    kept: dict[int, int | None]
    refused: dict[int, str]


def page(day: int, text: str, url: str = A, headers: str = "Content-Type: text/html") -> bytes:
    body = f"<!doctype html><title>Page</title><main><h1>Page</h1><p>{text}</p></main>".encode()
    return response(url, body, headers, date=dated(day), digest=f"sha1:{abs(hash(text))}")


def again(day: int, text: str, url: str = A, status: str = "304 Not Modified") -> bytes:
    """Return a revisit that found a text again."""
    digest = f"sha1:{abs(hash(text))}"
    return response(url, b"", "X: y", status, dated(day), kind="revisit", digest=digest)


def dated(day: int) -> str:
    return f"2026-01-{day:02}T00:00:00Z"


def made(
    tmp_path: Path,
    records: list[bytes],
    versions: str = ALL,
    *,
    keep: str = FIRST,
    rules: Rules | None = None,
    times: int = 1,
) -> Made:
    """Return the corpus of WARC files that have two records each, all but the last taken
    ``times``: each time, as after a kill before its marker."""
    rules, folder = rules or read_rules(), Folder(tmp_path / "out")
    index = DuplicateIndex(folder.index, rules.similarity)
    ranked = RankedCopies(index, keep, versions, exact=True)
    copies = ranked if (versions, keep) != (ALL, FIRST) else FirstCopies(index, exact=True)
    finisher, parts = Finisher(folder, copies, "jsonl", None), []
    for number in range(0, len(records), 2):
        source = write(tmp_path / f"{number:02}.warc.gz", records[number : number + 2])
        job = WorkerTask(
            folder.work, rules, PageChoice(), lambda body, _: body, 60, revisits=versions == LAST
        )
        parts.append(Slice(source.name, 0))
        for _ in range(times):
            SliceReader(job, Task(source, 0, {}), [0, 0], os.getppid()).run()
            if copies is not ranked:
                finisher.finish(parts[-1], Summary(), 0)
        if copies is ranked:
            ranked.add(parts[-1], folder.work)
    if copies is ranked:
        list(ranked.choose())
        for part in parts:
            finisher.finish(part, Summary(), 0)
    found = [
        msgspec.json.decode(line, type=CorpusRecord)
        for path in sorted(folder.data.iterdir())
        for line in read_lines(path)
    ]
    days = {each.record_id: int(each.date[8:10]) for each in found}
    places = {}
    for number in range(0, len(records), 2):
        offset = len(write(tmp_path / "one", records[number : number + 1]).read_bytes())
        name = f"{number:02}.warc.gz"
        places |= {(name, 0): number, (name, offset): number + 1}
    day_of = [int(each.partition(b"WARC-Date: 2026-01-")[2][:2]) for each in records]
    refused = [msgspec.json.decode(line, type=Refusal) for line in folder.refusals()]
    index.close()
    folder.close()
    return Made(
        {days[each.record_id]: each.previous and days[each.previous] for each in found},
        {day_of[places[each.warc_file, each.warc_offset]]: each.rule for each in refused},
    )


OLD = prose(1)
NEW = OLD.replace("village", "town", 1)
NEWER = NEW.replace("paper", "pulp", 1)
OTHER = prose(2)


@pytest.mark.parametrize("keep", [FIRST, "oldest"])
def test_each_text_that_a_url_had_is_a_document(tmp_path: Path, keep: str) -> None:
    """Near duplicates of another URL are dropped, and those of the page's own versions are not."""
    records = [
        page(1, OLD),
        page(2, NEW, B),
        again(3, OLD),
        page(4, NEW),
        page(5, NEWER, B),
        page(6, OTHER),
        page(7, NEW),
        page(8, NEWER),
    ]
    assert made(tmp_path, records, keep=keep) == Made(
        {1: None, 4: 1, 6: 4, 8: 6},
        {2: "near_duplicate", 5: "near_duplicate", 7: "known_version"},
    )


def test_a_nonce_makes_no_new_version(tmp_path: Path) -> None:
    """In the markup, or as a word with a digit. Numbers are told apart by a rule."""
    nonced = "<!-- x9 -->"
    texts = [f"{OLD} Seen by a1f{n}c at 12:{n}." for n in (1, 2)]
    records = [
        page(1, OLD),
        page(2, f"{nonced}{OLD}"),
        page(3, texts[0]),
        page(4, texts[1]),
    ]
    known = {2: "known_version", 4: "known_version"}
    assert made(tmp_path / "a", records) == Made({1: None, 3: 1}, known)
    numbers = replace(read_rules(), numbers=True)
    assert made(tmp_path / "b", records, rules=numbers).kept == {1: None, 3: 1, 4: 3}


def test_a_slice_read_again_has_the_same_versions(tmp_path: Path) -> None:
    """As after a kill: versions in the same slice, behind a page, are not before it."""
    records = [page(1, OLD), page(2, NEW), page(3, NEW), page(4, NEWER), page(5, OLD), page(6, OLD)]
    once, twice = (made(tmp_path / str(times), records, times=times) for times in (1, 3))
    assert once == twice == Made({1: None, 2: 1, 4: 2}, dict.fromkeys((3, 5, 6), "known_version"))
    # An older version stands behind a newer one in a file.
    records = [page(2, NEW), page(1, OLD)]
    assert made(tmp_path / "older", records, times=2) == Made({2: None, 1: None}, {})


def test_a_version_names_the_one_before_it_in_time(tmp_path: Path) -> None:
    """Whatever the order of files; what is written is not changed by an older one."""
    records = [page(3, NEW), page(9, OTHER, B), page(1, OLD), page(5, NEWER)]
    assert made(tmp_path, records).kept == {3: None, 9: None, 1: None, 5: 3}


@pytest.mark.parametrize(
    ("records", "kept", "refused"),
    [
        ([page(1, OLD), page(2, NEW)], {2}, {1: "older_version"}),
        # Whatever the order of files.
        ([page(2, NEW), page(1, OLD)], {2}, {1: "older_version"}),
        # Its first text is back: by a 304, by its body, or in full.
        ([page(1, OLD), page(2, NEW), again(3, OLD)], {1}, {2: "older_version"}),
        ([page(1, OLD), page(2, NEW), again(3, OLD, status="200 OK")], {1}, {2: "older_version"}),
        (
            [page(1, OLD), page(2, NEW), page(3, f"{OLD}<!-- -->")],
            {1},
            {2: "older_version", 3: "known_version"},
        ),
        # Another URL had it.
        ([page(1, OLD), page(2, NEW), again(3, OLD, B)], {2}, {1: "older_version"}),
        # It is gone, or shows nothing: the last version that there was stays.
        ([page(1, OLD), response(A, b"", status="404 Not Found", date=dated(2))], {1}, {}),
        ([page(1, OLD), page(2, "Back soon.")], {1}, {2: "chars"}),
        # It refuses: no version of it stays. Later it no longer does.
        ([page(1, OLD), page(2, NEW, headers=NOAI)], set(), {1: "older_version", 2: "noai"}),
        (
            [page(1, OLD), page(2, OLD, headers=NOAI), page(3, NEW)],
            {3},
            {1: "older_version", 2: "noai"},
        ),
        # Two pages have the same last version.
        ([page(1, OLD), page(2, NEW), page(3, NEW, B)], {2}, {1: "older_version", 3: "duplicate"}),
    ],
)
def test_the_last_version_alone(
    tmp_path: Path, records: list[bytes], kept: set[int], refused: dict[int, str]
) -> None:
    assert made(tmp_path, records, LAST) == Made(dict.fromkeys(kept), refused)


def test_numbers_are_left_out_of_any_script() -> None:
    def core(text: str) -> bytes:
        return fingerprints(text).core

    assert core("At 12:03 by ab3f") == core("At 9:59:01 by 77")
    assert core("2026年1月2日、村") == core("1999年12月31日、村")
    assert core("2026年1月2日、村") != core("2026年1月2日、町")
    assert core("one 1 two") != core("one two")


def test_numbers_are_left_out_in_linear_time() -> None:
    """Texts are hostile: a word may have a million letters. A quadratic search would take hours."""
    for text in ("a" * 1_000_000, "a1" * 500_000, "a1 " * 300_000):
        found = fingerprints(text, minhash=False)
        assert (found.core == found.exact) is ("1" not in text)


@pytest.mark.parametrize(("of_own", "of_other"), [(8, 18), (18, 8)])
def test_the_most_similar_page_decides(tmp_path: Path, of_own: int, of_other: int) -> None:
    """A page is near to its older version and to a page of another URL, which are not near to each
    other: it is a version of the first, or repeats the second."""
    words = prose(6, 600).split()

    def changed(start: int, count: int) -> str:
        new = {start + 20 * n: f"changed{'abcdefghijklmnopqr'[n]}" for n in range(count)}
        return " ".join(new.get(n, word) for n, word in enumerate(words))

    records = [
        page(1, changed(0, of_own)),
        page(2, changed(10, of_other), B),
        page(3, " ".join(words)),
        page(4, OTHER, B),
    ]
    is_version = of_own < of_other
    assert made(tmp_path, records) == Made(
        {1: None, 2: None, 4: 2} | ({3: 1} if is_version else {}),
        {} if is_version else {3: "near_duplicate"},
    )


def beside(answer: bytes, day: int, message: bytes) -> tuple[bytes, bytes]:
    """Return a request and its answer, of which the later record names the earlier one."""
    identity = f"<urn:test:request-{day}>"
    fields = (
        f"WARC/1.0\r\nWARC-Type: request\r\nWARC-Record-ID: {identity}\r\n"
        f"WARC-Target-URI: {A}\r\nWARC-Date: {dated(day)}\r\n"
        f"Content-Type: application/http; msgtype=request\r\nContent-Length: {len(message)}\r\n"
    )
    if day % 2:
        head = answer.replace(
            b"Content-Type: app", b"WARC-Concurrent-To: %b\r\nContent-Type: app", 1
        )
        named = head.replace(b"%b", identity.encode(), 1)
        return fields.encode() + b"\r\n" + message + b"\r\n\r\n", named
    found = answer.partition(b"WARC-Record-ID: ")[2].partition(b"\r\n")[0]
    fields += f"WARC-Concurrent-To: {found.decode()}\r\n"
    return answer, fields.encode() + b"\r\n" + message + b"\r\n\r\n"


def test_the_answer_to_a_post_is_no_version_of_its_page(tmp_path: Path):
    """Each body that is posted has its own versions, wherever the request record stands."""
    get = b"GET / HTTP/1.1\r\n\r\n"

    def post(body: bytes) -> bytes:
        kind = b"Content-Type: application/x-www-form-urlencoded"
        return b"POST / HTTP/1.1\r\n%b\r\nContent-Length: %d\r\n\r\n%b" % (kind, len(body), body)

    asked = [get, post(b"q=1"), get, post(b"q=1"), post(b"q=2"), post(b"q=1")]
    texts = [prose(1), prose(2), prose(3), prose(4), prose(5), prose(2)]
    records = [
        record
        for day, (message, text) in enumerate(zip(asked, texts, strict=True), 1)
        for record in beside(page(day, text), day, message)
    ]
    found = made(tmp_path, records)
    assert found.kept == {1: None, 2: None, 3: 1, 4: 2, 5: None}
    assert found.refused == {6: "known_version"}
    last = made(tmp_path / "last", records, LAST)
    assert set(last.kept) == {2, 3, 5}
