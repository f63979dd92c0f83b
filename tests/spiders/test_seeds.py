"""Seeds: given as a file or with commas in its place, read in chunks, each bad line named."""

from __future__ import annotations

import gzip
import logging
import os
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from krowlspider.errors import SeedsError
from krowlspider.spiders.seeds import TEXT_MAX, SeedsFile, seeds_of
from krowlspider.urls.seeds import SeedWords
from tests.support.crawling import frontier_view, write_seeds
from tests.support.crawls import page, pages, refused
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from krowlspider.frontier.seed_table import SeedLine

# As strings they take 100 bytes each.
LINES = 32_000


def urls_of(given: str) -> list[str]:
    return [line.url for lines in seeds_of(given).chunks() for line in lines]


@pytest.fixture
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_empty_folder")
@pytest.mark.parametrize(
    ("given", "urls"),
    [
        ("http://127.0.0.1:81/", ["http://127.0.0.1:81/"]),
        ("example.com", ["https://example.com/"]),
        ("example.com, example.org,", ["https://example.com/", "https://example.org/"]),
        ("http://a.test/x,b.test/y", ["http://a.test/x", "https://b.test/y"]),
        ("http://a.test/list.txt", ["http://a.test/list.txt"]),
        ("localhost", ["https://localhost/"]),
        (
            ",".join(f"host{n}.test" for n in range(600)),
            [f"https://host{n}.test/" for n in range(600)],
        ),
    ],
)
def test_urls_and_domains_are_seeds(given: str, urls: list[str]) -> None:
    assert urls_of(given) == urls


@pytest.mark.usefixtures("in_empty_folder")
def test_file_that_exists_is_read(tmp_path: Path) -> None:
    write_seeds(tmp_path / "example.com", ["a.test"])
    assert urls_of("example.com") == ["https://a.test/"]


@pytest.mark.usefixtures("in_empty_folder")
@pytest.mark.parametrize(
    "given", ["seeds/none.txt", "none.txt", "none", "./none", "example.com/news"]
)
def test_other_text_is_the_path_of_a_file(given: str) -> None:
    with pytest.raises(SeedsError, match=r"^seeds file \S+ cannot be read: "):
        seeds_of(given)


@pytest.mark.usefixtures("in_empty_folder")
@pytest.mark.parametrize(
    ("given", "hinted"), [("a.test/x", True), ("a.test:81/", True), ("./a.test/x", False)]
)
def test_url_without_a_scheme_is_told_what_it_lacks(given: str, hinted: bool) -> None:
    with pytest.raises(SeedsError) as caught:
        seeds_of(given)
    message = str(caught.value)
    assert message.endswith("; a URL with a path begins with https:// or http://") is hinted


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("ftp://a.test/", "scheme ftp, neither http nor https"),
        ("a.test,none", "neither a URL nor a domain: 'none'"),
        ("http://a.test/\udcff", "not UTF-8"),
        ("a.test\nb.test", "whitespace inside"),
        (",", "has no seed"),
    ],
)
def test_bad_seed_is_named_in_one_line(given: str, reason: str) -> None:
    with pytest.raises(SeedsError) as caught:
        seeds_of(given)
    message = str(caught.value)
    assert message.startswith(f"-a seeds={given!r}")
    assert reason in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("given", ["b.test,http://me:secret@a.test/", "b.test,me:secret@a.test"])
def test_password_in_a_seed_is_not_shown(given: str) -> None:
    with pytest.raises(SeedsError) as caught:
        seeds_of(given)
    assert "...@a.test" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_crawl_from_urls_of_the_command_line(tmp_path: Path) -> None:
    spec = [page("/robots.txt", "", status=404), page("/", "<a href=/a>a</a>"), page("/a", "x")]
    with SimulatedWeb(spec=spec) as web:
        seeds = f"{web.url('a.test')},{web.url('b.test', '/a').removeprefix('http://')}"
        settings = {"KROWL_DISK_FLOOR": "1kB"}
        crawl = SimulatedCrawl(
            tmp_path / "job", arguments={"seeds": seeds}, settings=settings
        ).run()
        asked = {(entry.host, entry.path) for entry in pages(web.log())}
    assert {path for _, path in asked} == {"/", "/a"}
    assert len(asked) == 3
    assert "2 seeds read from the command line, 2 new, 0 bad lines" in crawl.log
    bad = SimulatedCrawl(tmp_path / "job2", arguments={"seeds": "a.test,none"})
    assert "-a seeds='a.test,none'" in refused(bad)


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


def test_words_of_one_line_have_all_lines_counted(tmp_path: Path) -> None:
    """Also where the first words are behind what is archived; a table of seeds has no words."""
    plain = "".join(f"https://a.test/{'x' * 900}{n}\n" for n in range(TEXT_MAX // 900))
    path = tmp_path / "seeds.txt"
    path.write_text(f'{plain}https://b.test/#x\t{{"depth": 1}} # y\nhttps://c.test/\t{{"depth"}}\n')
    seeds = SeedsFile(path)
    assert not seeds.has_words
    text, truncated = seeds.text()
    assert truncated
    assert b"b.test" not in text
    assert seeds.has_words
    *some, good, bad = [line for lines in seeds.chunks() for line in lines]
    assert {line.words for line in some} == {SeedWords()}
    assert (good.text, good.words) == ("https://b.test/#x", SeedWords(depth=1))
    assert (bad.words, bad.number) == (None, len(some) + 2)
    assert bad.error.startswith("the words behind the tab are no JSON")


def test_plain_seeds_have_no_words(tmp_path: Path) -> None:
    seeds = SeedsFile(write_seeds(tmp_path / "seeds.txt", ["a.test", "https://b.test/{x}"]))
    seeds.text()
    assert not seeds.has_words
    assert [line.words for lines in seeds.chunks() for line in lines] == [None, None]
    (line,) = next(seeds_of('https://a.test/\t{"depth": 1}').chunks())
    assert (line.text, line.words) == ("https://a.test/", SeedWords(depth=1))
