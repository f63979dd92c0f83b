"""The spider classes that Scrapy ships run on the project's scheduler: docs/spiders.md says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scrapy.link import Link

from krowlspider.job.codec import RequestCodec
from tests.support.crawls import page
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb
from tests.support.spiders.scrapys import Shop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mockweb.log import Entry
    from tests.support.crawling import Crawl

SITEMAP = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{}</urlset>'
XML = {"Content-Type": "application/xml"}
NAMES = ("one", "two")


def shop() -> list[dict[str, object]]:
    """The rules of a shop whose index leads to another site too."""
    here = "http://shop.test:{port}"
    locs = "".join(f"<url><loc>{here}/item/{name}</loc></url>" for name in NAMES)
    offers = "".join(f'<offer name="{name}"/>' for name in NAMES)
    links = "".join(f"<a href=/item/{name}>{name}</a>" for name in NAMES)
    away = "<a href=http://other.test:{port}/>away</a>"
    return [
        {"path": "/robots.txt", "body": f"sitemap: {here}/map.xml\n"},
        {"path": "/map.xml", "headers": XML, "body": SITEMAP.format(locs)},
        {"path": "/feed.xml", "headers": XML, "body": f"<offers>{offers}</offers>"},
        {"path": "/feed.csv", "headers": {"Content-Type": "text/csv"}, "body": "name\none\ntwo\n"},
        page("/", f"<a href=/more>more</a>{away}"),
        page("/more", links),
        page("^/item/", "an item"),
    ]


def crawl_shop(spider: str, folder: Path) -> tuple[Crawl, list[Entry]]:
    with SimulatedWeb(spec=shop()) as web:
        crawl = SimulatedCrawl(
            folder / "job",
            spider=spider,
            arguments={"root": web.url("shop.test", "")},
            settings={"SPIDER_MODULES": "tests.support.spiders"},
        ).run()
        return crawl, web.log()


def test_a_crawl_spider_keeps_to_its_allowed_domains(tmp_path: Path) -> None:
    crawl, log = crawl_shop("scrapy-crawl", tmp_path)
    assert sorted(item["item"] for item in crawl.items) == list(NAMES)
    assert {entry.host for entry in log} == {log[0].host}
    assert crawl.stats["offsite/filtered"] == 1


@pytest.mark.parametrize("spider", ["scrapy-sitemap", "scrapy-xml", "scrapy-csv"])
def test_a_sitemap_or_feed_spider_finds_all_items(spider: str, tmp_path: Path) -> None:
    crawl, _ = crawl_shop(spider, tmp_path)
    assert sorted(item["item"] for item in crawl.items) == list(NAMES)
    assert crawl.complaints == []


def test_a_private_callback_does_not_travel_between_nodes() -> None:
    """CrawlSpider's and SitemapSpider's own callbacks are private methods."""
    spider = Shop(root="http://shop.test")
    codec = RequestCodec(spider)
    request = spider._build_request(0, Link("http://shop.test/item/one"))
    entry = codec.entry(request, request.url)
    assert codec.request(entry).callback == spider._callback
    with pytest.raises(ValueError, match="callback"):
        codec.message(entry)
