"""The benchmark of the archive writer compares like with like."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from fastwarc.warc import ArchiveIterator

from bench.archive import MAX_RATIO, MAX_US, verdict
from bench.contenders import BATCH, CONTENDERS, Ours, OursInThread, Web
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGES = [b"<p>one</p>" * 300, b"<p>two</p>" * 400]
MEASURE = """
import json
from bench import archive
figures = archive.measure(2, pairs=120)
print(json.dumps(figures))
print(archive.table(figures))
"""


def records(folder: Path) -> Counter[tuple[str, str, str, str | None]]:
    """Type, URL, block digest and payload digest of the records in a folder's files, found to be
    true."""
    found: Counter[tuple[str, str, str, str | None]] = Counter()
    for path in folder.glob("*.warc.gz"):
        for record in ArchiveIterator(path, parse_http=False):
            fields = record.headers
            kind = fields["WARC-Type"]
            assert record.verify_block_digest()
            payload = None
            # warcio digests the payload of a request too, which is empty.
            if kind == "response":
                record.parse_http()
                assert record.verify_payload_digest()
                payload = fields["WARC-Payload-Digest"]
            if kind != "warcinfo":
                found[kind, fields["WARC-Target-URI"], fields["WARC-Block-Digest"], payload] += 1
    return found


def written(folder: Path, pairs: int) -> list[Counter[tuple[str, str, str, str | None]]]:
    """The records that each contender makes of the same pairs."""
    folders = [folder / make.__name__ for make in CONTENDERS]
    for place in folders:
        place.mkdir()
    contenders = [make(place) for make, place in zip(CONTENDERS, folders, strict=True)]
    for batch in Web(PAGES).batches(pairs):
        for contender in contenders:
            contender.write(batch)
    for contender in contenders:
        contender.close()
    return [records(place) for place in folders]


def test_all_contenders_make_the_same_records_of_a_batch(tmp_path: Path) -> None:
    """A response and a request each, with the same digests; no payload is there twice."""
    pairs = BATCH + 20
    first, *others = written(tmp_path, pairs)
    assert Counter(kind for kind, *_ in first.elements()) == {"response": pairs, "request": pairs}
    assert len({payload for kind, _, _, payload in first if kind == "response"}) == pairs
    assert all(other == first for other in others)


@pytest.mark.parametrize("ours", [Ours, OursInThread])
def test_ours_is_measured_with_its_index_and_its_payload_index(
    tmp_path: Path, ours: type[Ours | OursInThread]
) -> None:
    contender = ours(tmp_path)
    for batch in Web(PAGES).batches(30):
        contender.write(batch)
    contender.close()
    (index,) = tmp_path.glob("*.cdxj")
    assert len(index.read_text().splitlines()) == 30
    assert list((tmp_path / "payloads").iterdir())


@pytest.mark.slow
def test_the_benchmark_tells_each_writer_and_each_stage(tmp_path: Path) -> None:
    for number, page in enumerate(PAGES):
        (tmp_path / f"{number}.html").write_bytes(page)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE],
        cwd=ROOT,
        env={**os.environ, "TEST_DOCS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    said, *table = done.stdout.splitlines()
    figures = json.loads(said)
    assert (figures["pages"], figures["pairs"], figures["runs"]) == (2, 120, 2)
    assert list(figures["writers"]) == [make.__name__ for make in CONTENDERS]
    assert figures["writers"]["Warcio"]["of_warcio"] == {"median": 1, "least": 1, "most": 1}
    for spread in [*(found["us_a_pair"] for found in figures["writers"].values())]:
        assert 0 < spread["least"] <= spread["median"] <= spread["most"]
    rows = [*figures["writers"], *figures["stages_us"]]
    assert [line.startswith(row) for line, row in zip(table[1:], rows, strict=False)] == [
        True
    ] * len(rows)
    assert table[-1] == verdict(figures)


@pytest.mark.parametrize(
    ("ratio", "spent", "missed"),
    [
        (MAX_RATIO, MAX_US, 0),
        (MAX_RATIO + 0.001, MAX_US, 1),
        (MAX_RATIO, MAX_US + 0.1, 1),
        (MAX_RATIO + 0.001, MAX_US + 0.1, 2),
    ],
)
def test_each_bar_that_our_writer_does_not_keep_is_told(
    ratio: float, spent: float, missed: int
) -> None:
    ours = {"of_warcio": {"median": ratio}, "us_a_pair": {"median": spent}}
    assert verdict({"writers": {"OursInThread": ours}}).count("MISSED") == missed
