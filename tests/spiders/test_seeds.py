"""Seeds are given as a file, or with commas in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.errors import SeedsError
from krowlspider.spiders.seeds import seeds_of
from tests.support.crawling import write_seeds
from tests.support.crawls import page, pages, refused
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path


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
