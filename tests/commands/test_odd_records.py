"""Records that other tools write in ways of their own, and what every command makes of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from krowlspider.corpus.folder import read_lines
from tests.archive.command import warc
from tests.corpus.warcs import html, response, write
from tests.support.crawling import scrapy

if TYPE_CHECKING:
    from pathlib import Path

URLS = [f"http://a.example/{number}" for number in range(3)]
RECORDS = [response(url, html(number)) for number, url in enumerate(URLS)]


def corpus(source: Path, out: Path, code: int = 0) -> tuple[list[str], str]:
    """Return the URLs of a corpus, and what the command says."""
    done = scrapy("corpus", source, "-o", out, "--processes", 1, code=code)
    lines = [json.loads(line) for shard in (out / "data").iterdir() for line in read_lines(shard)]
    return [line["url"] for line in lines], (done.stdout + done.stderr).decode()


def test_first_segment_of_a_response_is_no_whole_page(tmp_path: Path) -> None:
    """It is skipped and counted in a corpus, and printed with a line and exit code 1."""
    first = RECORDS[1].replace(b"WARC-Date", b"WARC-Segment-Number: 1\r\nWARC-Date", 1)
    rest = first.replace(b"Number: 1", b"Number: 2").replace(b": response", b": continuation", 1)
    (there := tmp_path / "warc").mkdir()
    write(there / "a.warc.gz", [RECORDS[0], first, rest, RECORDS[2]])
    found, said = corpus(there, tmp_path / "out")
    assert found == [URLS[0], URLS[2]]
    assert "1  segmented" in said
    warc("index", there)
    for options in ([], ["--payload"]):
        content, said = warc("cat", URLS[1], there, *options, code=1)
        assert content.endswith(html(1))
        assert said == (
            f"krowlspider: {URLS[1]}: it is the first of several segments, and the others are not"
            " printed\n"
        )
        assert warc("cat", URLS[0], there, *options)[1] == ""
