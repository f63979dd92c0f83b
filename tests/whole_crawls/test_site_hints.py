"""What a site says of its changes decides what a crawl that goes on fetches next."""

from __future__ import annotations

import asyncio
import json
import shutil
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.job.crawls import _crawls
from krowlspider.recrawl import validators
from krowlspider.recrawl.indexnow import WAITING_MAX, read_body
from tests.support.archived import valid_records
from tests.support.crawling import scrapy, write_seeds
from tests.support.crawls import anchors
from tests.support.rawweb import HTML, Raw, answer
from tests.support.simulated_crawl import SimulatedCrawl, interrupt, interrupted_when
from tests.support.simulated_loop import clocks
from tests.support.simulated_web import SimulatedRawWeb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.crawling import Crawl
    from tests.support.simulated_loop import Script

HOST = "a.test"
HOUR = 3600.0
# Seconds of a start, in which pages come up that were due before it, and those of its first ticks.
LASTS = 200
SETTINGS = {"KROWL_RECRAWL": "continuous", "KROWL_COMMIT_INTERVAL": 5, "RETRY_TIMES": 0}
XML = b"Content-Type: text/xml"


@pytest.fixture(autouse=True)
def no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """No page is one of the sample that is asked in full. It goes by the URL, and ports differ."""
    monkeypatch.setattr(validators, "IN_FULL_EVERY", 1 << 62)


class News(dict[str, Raw]):
    """A site whose pages stay, until ``changed`` have changed at a time. Its document at ``place``,
    which ``make`` makes of URLs and dates, is another one each hour."""

    def __init__(self, place: str, make: Callable[[dict[str, str]], str], pages: int = 8) -> None:
        super().__init__({"/robots.txt": Raw(answer(b"Content-Type: text/plain"))})
        self.pages = [f"/p{number}" for number in range(pages)]
        self.changed: dict[str, float] = {}
        self.root = ""
        self._place, self._make = place, make
        kind = "application/feed+json" if place.endswith("json") else "application/rss+xml"
        feed = f'<link rel="alternate" type="{kind}" href="{place}">' if "feed" in place else ""
        self["/"] = Raw(answer(HTML, body=(feed + anchors(*self.pages)).encode()))

    def get(self, path: str, default: Any = None) -> Any:
        if path == self._place:
            # Before the first fetch, and no two alike.
            dates = {path: 1e9 + number for number, path in enumerate(self.pages)} | self.changed
            entries = {self.root + path: formatdate(dates[path]) for path in dates}
            document = self._make(entries) + "\n" * int(clocks.wall() // HOUR % 50)
            return Raw(answer(XML, body=document.encode()))
        if path in self.pages:
            text = "new" if path in self.changed else "old"
            return Raw(answer(HTML, body=f"{path} is {text}".encode()))
        return super().get(path, default)


def urlset(dates: dict[str, str]) -> str:
    entries = (
        f"<url><loc>{url}</loc><lastmod>{date}</lastmod></url>" for url, date in dates.items()
    )
    return f"<urlset>{''.join(entries)}</urlset>"


def rss(dates: dict[str, str]) -> str:
    items = (
        f"<item><link>{url}</link><pubDate>{date}</pubDate></item>" for url, date in dates.items()
    )
    return f"<rss><channel>{''.join(items)}</channel></rss>"


def json_feed(dates: dict[str, str]) -> str:
    items = [{"id": url, "url": url, "date_modified": date} for url, date in dates.items()]
    return json.dumps({"version": "https://jsonfeed.org/version/1.1", "items": items})


def crawl(
    web: SimulatedRawWeb, folder: Path, script: Script | None = None, **settings: Any
) -> tuple[Crawl, list[str]]:
    """Crawl for some minutes; return what was asked."""
    web.requests.clear()
    done = SimulatedCrawl(
        folder / "job",
        arguments={"seeds": write_seeds(folder / "seeds.txt", [web.url(HOST, "/")])},
        settings={**SETTINGS, **settings},
        script=script or interrupted_when(LASTS),
    ).run()
    return done, sorted(path for path, _ in web.requests if path != "/robots.txt")


def after_changes(
    site: News, folder: Path, *changed: str, **settings: Any
) -> tuple[Crawl, list[str]]:
    """Crawl thrice, so that nothing is due for hours, and once more two hours after the third time,
    when pages have changed meanwhile. Return what is asked then."""
    with SimulatedRawWeb(site) as web:
        site.root = web.url(HOST, "/")[:-1]
        for _ in range(2):
            crawl(web, folder, **settings)
            clocks.now += 40 * HOUR
        _, asked = crawl(web, folder, **settings)
        assert {*site.pages} < {*asked}
        clocks.now += 2 * HOUR
        site.changed = {path: clocks.wall() - 600 + at for at, path in enumerate(changed)}
        return crawl(web, folder, **settings)


@pytest.mark.parametrize(
    ("place", "make", "sitemaps"),
    [
        ("/sitemap.xml", urlset, 1),
        ("/feed", rss, 0),
        pytest.param("/feed.json", json_feed, 0, marks=pytest.mark.slow),
    ],
)
def test_a_page_that_its_site_names_is_fetched_before_its_time(
    tmp_path: Path, place: str, make: Callable[[dict[str, str]], str], sitemaps: int
) -> None:
    site = News(place, make)
    done, asked = after_changes(site, tmp_path, "/p3", KROWL_SITEMAPS=sitemaps)
    assert asked == sorted([place, "/p3"])
    assert done.stats["krowl/recrawl/hinted_count"] == 1
    assert done.stats["krowl/recrawl/hinted_changed_count"] == 1
    # The document is archived each time, and is no page.
    records = valid_records(done.jobdir / "warc").about(site.root + place)
    assert records.kinds["response"] == 4
    pages = scrapy("frontier", done.jobdir, "--pages").stdout
    assert place.encode() + b'"' not in pages
    assert b'/p3"' in pages


# --- IndexNow ---

KEY = "0123456789abcdef"
ON = {"KROWL_SITEMAPS": 0, "KROWL_INDEXNOW": 1}


def submit(*urls: str, key: str = KEY) -> asyncio.Task[tuple[int, str]]:
    """Give a submission to the crawl that runs."""
    taker = [each for each in _crawls.values() if each.job.is_open][-1].index_now
    assert taker is not None
    given = {"host": urls[0].split("/")[2], "key": key, "urlList": urls}
    body = json.dumps(given).encode()
    return asyncio.get_running_loop().create_task(
        taker(lambda url_max: read_body(body, url_max))  # type: ignore[arg-type]
    )


def is_running() -> bool:
    return any(each.job.is_open and each.index_now is not None for each in _crawls.values())


def due_in_hours(web: SimulatedRawWeb, site: News, folder: Path) -> None:
    """Crawl until no page is due for hours."""
    site.root = web.url(HOST, "/")[:-1]
    site[f"/{KEY}.txt"] = Raw(answer(b"Content-Type: text/plain", body=KEY.encode() + b"\n"))
    for _ in range(2):
        crawl(web, folder, **ON)
        clocks.now += 40 * HOUR
    crawl(web, folder, **ON)
    clocks.now += 2 * HOUR


@pytest.mark.slow
def test_a_submission_brings_its_pages_forward_once_its_key_is_right(tmp_path: Path) -> None:
    """One with a wrong key does not. A page that is not known is queued as a link."""
    site, said = News("/none", urlset), list[tuple[int, str]]()
    site["/new"] = Raw(answer(HTML, body=b"new"))
    with SimulatedRawWeb(site) as web:
        due_in_hours(web, site, tmp_path)

        def give() -> Script:
            yield is_running
            for urls, key in (
                (["/p1", "/p2"], "another-key"),
                (["/p3", "/new", "/new?utm_source=x"], KEY),
                (["/p1"], "another-key"),
                (["/p5"], KEY),
            ):
                given = submit(*(site.root + path for path in urls), key=key)
                yield given.done
                said.append(given.result())
                # Its key is checked within the delay of the host.
                yield 20
            elsewhere = submit("http://b.test/", key=KEY)
            yield elsewhere.done
            said.append(elsewhere.result())
            yield LASTS
            interrupt()

        site.changed = {"/p3": clocks.wall()}
        done, asked = crawl(web, tmp_path, give(), **ON)
    assert [status for status, _ in said] == [202, 202, 403, 200, 422]
    assert asked == sorted(["/another-key.txt", f"/{KEY}.txt", "/p3", "/p5", "/new"])
    stats = done.stats
    assert stats["krowl/indexnow/taken_count"] == 4
    assert stats["krowl/indexnow/refused_count/key"] == 2
    assert stats["krowl/indexnow/refused_count/host"] == 1
    assert stats["krowl/recrawl/hinted_count"] == 2
    assert stats["krowl/recrawl/hinted_changed_count"] == 1
    # The file of a key is archived, and is no page.
    records = valid_records(done.jobdir / "warc").about(f"{site.root}/{KEY}.txt")
    assert records.kinds["response"] == 1
    assert f"/{KEY}.txt".encode() not in scrapy("frontier", done.jobdir, "--pages").stdout
    assert stats["krowl/frontier/fetched_count/index_key"] == 2


@pytest.mark.slow
def test_a_key_file_that_cannot_be_read_ends_its_check(tmp_path: Path) -> None:
    """A page for errors of 50 KB is no key, and no check waits for an answer that never comes, or
    for a file that robots.txt refuses: four would keep the host's right key out for a day."""
    site, said = News("/none", urlset), list[int]()
    site["/robots.txt"] = Raw(
        answer(b"Content-Type: text/plain", body=b"User-agent: *\nDisallow: /refused")
    )
    refused = [f"refused-{number}" for number in range(WAITING_MAX)]
    wrong = [f"soft-404-key-{number}" for number in range(WAITING_MAX)]
    for key in wrong:
        site[f"/{key}.txt"] = Raw(answer(HTML, body=b"x" * 50_000))
    for number in range(WAITING_MAX):
        site[f"/no-answer-{number}.txt"] = Raw(b"", closes=True)
    with SimulatedRawWeb(site) as web:
        due_in_hours(web, site, tmp_path)

        def give() -> Script:
            yield is_running
            silent = [f"no-answer-{number}" for number in range(WAITING_MAX)]
            for key in (*wrong, *wrong, *silent, *refused, KEY):
                given = submit(f"{site.root}/p3", key=key)
                yield given.done
                said.append(given.result()[0])
                yield 60
            yield LASTS
            interrupt()

        _, asked = crawl(web, tmp_path, give(), **ON, RETRY_TIMES=0)
    statuses = [202, 403, 202, 422]
    assert said == [*(status for status in statuses for _ in range(WAITING_MAX)), 202]
    assert "/p3" in asked


@pytest.mark.slow
def test_a_submission_that_waits_survives_a_kill(tmp_path: Path) -> None:
    site, killed = News("/none", urlset), tmp_path / "killed"
    with SimulatedRawWeb(site) as web:
        due_in_hours(web, site, tmp_path)

        def give() -> Script:
            yield is_running
            given = submit(f"{site.root}/p3")
            yield given.done
            assert given.result()[0] == 202
            assert not web.requests
            shutil.copytree(tmp_path / "job", killed)
            interrupt()

        crawl(web, tmp_path, give(), **ON)
        shutil.rmtree(tmp_path / "job")
        killed.rename(tmp_path / "job")
        _, asked = crawl(web, tmp_path, **ON)
    assert asked == [f"/{KEY}.txt", "/p3"]
