"""What a site says of its changes decides what a crawl that goes on fetches next."""

from __future__ import annotations

import json
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.recrawl import validators
from tests.support.archived import valid_records
from tests.support.crawling import scrapy, write_seeds
from tests.support.crawls import anchors
from tests.support.rawweb import HTML, Raw, answer
from tests.support.simulated_crawl import SimulatedCrawl, interrupted_when
from tests.support.simulated_loop import clocks
from tests.support.simulated_web import SimulatedRawWeb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.crawling import Crawl

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


def lasting(seconds: float) -> Callable[[], bool]:
    end = clocks.wall() + seconds
    return lambda: clocks.wall() >= end


def crawl(web: SimulatedRawWeb, folder: Path, **settings: Any) -> tuple[Crawl, list[str]]:
    """Crawl for some minutes; return what was asked."""
    web.requests.clear()
    done = SimulatedCrawl(
        folder / "job",
        arguments={"seeds": write_seeds(folder / "seeds.txt", [web.url(HOST, "/")])},
        settings={**SETTINGS, **settings},
        script=interrupted_when(lasting(LASTS)),
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
    [("/sitemap.xml", urlset, 1), ("/feed", rss, 0), ("/feed.json", json_feed, 0)],
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
