"""Seeds are read in chunks, however many there are, and each bad line is named."""

from __future__ import annotations

import gzip
import logging
import os
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from krowlspider.spiders.seeds import TEXT_MAX, SeedsFile
from tests.support.crawling import frontier_view, write_seeds
from tests.support.crawls import page, pages
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from krowlspider.frontier.seed_table import SeedLine

# As strings they take 100 bytes each.
LINES = 32_000


def urls(lines: list[SeedLine]) -> list[str]:
    return [line.url for line in lines if line.url]


@pytest.mark.slow
def test_many_lines_are_never_in_memory_at_once(tmp_path: Path) -> None:
    path = tmp_path / "seeds.txt.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for start in range(0, LINES, 1000):
            file.write(b"".join(b"host%d.example\n" % n for n in range(start, start + 1000)))
    seeds = SeedsFile(path)
    tracemalloc.start()
    count = sum(len(lines) for lines in seeds.chunks())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (count, seeds.good, seeds.bad) == (LINES, LINES, 0)
    assert peak < 3_000_000 < 100 * LINES


@pytest.mark.slow
def test_text_is_the_file_up_to_a_size(tmp_path: Path) -> None:
    file = tmp_path / "seeds.gz"
    line = b"example.org # ours\n"
    whole = line * (TEXT_MAX // len(line))
    file.write_bytes(gzip.compress(whole, 1))
    assert SeedsFile(file).text() == (whole, False)
    file.write_bytes(gzip.compress(whole + line, 1))
    assert SeedsFile(file).text() == (whole, True)
    file.write_bytes(b"e" * (TEXT_MAX + 1))
    assert SeedsFile(file).text() == (b"e" * TEXT_MAX, True)


@pytest.mark.parametrize("packed", [False, True])
def test_seeds_of_a_pipe_are_read(tmp_path: Path, packed: bool) -> None:
    """As of the shell's <(...), which cannot be read twice."""
    text = b"a.test\nb.test\n"
    read_end, write_end = os.pipe()
    os.write(write_end, gzip.compress(text) if packed else text)
    os.close(write_end)
    seeds = SeedsFile(Path(f"/dev/fd/{read_end}"))
    os.close(read_end)
    assert seeds.text() == (text, False)
    assert [urls(lines) for lines in seeds.chunks()] == [["https://a.test/", "https://b.test/"]]
    assert seeds.source == f"/dev/fd/{read_end}"


def test_passwords_are_neither_archived_nor_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "seeds.txt"
    path.write_bytes(
        b"http://me:secret@a.test/\n me:secret@b.test\xff\nhttp://c.test/@d # e@f.test\n"
    )
    seeds = SeedsFile(path)
    shown = b"http://...@a.test/\n ...@b.test\xff\nhttp://c.test/@d # e@f.test\n"
    assert seeds.text() == (shown, False)
    assert [urls(lines) for lines in seeds.chunks()] == [["http://c.test/@d"]]
    assert (seeds.bad, "secret" in caplog.text) == (2, False)


def test_bad_lines_keep_their_numbers_after_an_endless_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "seeds.txt"
    path.write_bytes(b"1,a.test\n" + b"x" * 300_000 + b"\nb.test\n1,1,c.test,test\n")
    seeds = SeedsFile(path)
    with caplog.at_level(logging.WARNING):
        assert [urls(lines) for lines in seeds.chunks()] == [["https://a.test/", "https://b.test/"]]
    named = [record.getMessage().split(" skipped")[0] for record in caplog.records]
    assert named == [f"{path} line 2", f"{path} line 4"]
    assert "scrapy seeds converts such lists" in caplog.records[1].getMessage()
    assert "scrapy seeds" not in caplog.records[0].getMessage()


def test_after_twenty_bad_lines_one_more_says_where_the_rest_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "seeds.txt"
    path.write_text("no dots\n" * 25)
    with caplog.at_level(logging.WARNING):
        assert all(line.error for lines in SeedsFile(path).chunks() for line in lines)
    assert len(caplog.records) == 21
    assert "further bad lines are logged with LOG_LEVEL=DEBUG" in caplog.records[-1].getMessage()


def test_a_gzip_that_breaks_off_is_read_as_far_as_it_goes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "seeds.txt.gz"
    lines = b"".join(b"host%d.example\n" % n for n in range(50_000))
    path.write_bytes(gzip.compress(lines)[:-5000])
    seeds = SeedsFile(path)
    with caplog.at_level(logging.ERROR):
        count = sum(len(lines) for lines in seeds.chunks())
    assert 10_000 < count == seeds.good < 50_000
    assert "ends early" in caplog.text


@pytest.mark.parametrize("lines", [[], ["# a comment", ""], ["no dots", "ftp://c.test/"]])
def test_a_file_without_a_seed_is_a_mistake_and_told_in_one_line(
    tmp_path: Path, lines: list[str]
) -> None:
    path = write_seeds(tmp_path / "seeds.txt", lines)
    crawl = SimulatedCrawl(tmp_path / "job", arguments={"seeds": path}).run(code=2)
    assert crawl.stats["finish_reason"] == "nothing_to_crawl"
    message = f"Nothing to crawl: no line of {path} is a seed, and no URL is queued"
    assert crawl.log.count(message) == 1
    assert "Traceback" not in crawl.log


def test_file_without_a_seed_is_fine_when_urls_are_queued(tmp_path: Path) -> None:
    spec = [page("/robots.txt", "", status=404), page("/", "<a href=/a>a</a>"), page("/a", "x")]
    path = tmp_path / "seeds.txt"
    with SimulatedWeb(spec=spec) as web:
        write_seeds(path, [web.url("a.test")])
        SimulatedCrawl(tmp_path / "job", arguments={"seeds": path, "max_pages": 1}).run()
        write_seeds(path, [])
        crawl = SimulatedCrawl(tmp_path / "job", arguments={"seeds": path}).run()
        assert [entry.path for entry in pages(web.log())] == ["/", "/a"]
        assert frontier_view(crawl.jobdir)["queued"] == 0
