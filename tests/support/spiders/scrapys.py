"""Spiders on the classes that Scrapy ships, as its documentation writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, CSVFeedSpider, Rule, SitemapSpider, XMLFeedSpider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.http import Response
    from scrapy.selector import Selector


class Shop(CrawlSpider):
    """Follows the pages of one site and reads its items."""

    name = "scrapy-crawl"
    allowed_domains = ("shop.test",)
    rules = (
        Rule(LinkExtractor(allow="/item/"), callback="parse_item"),
        Rule(LinkExtractor(), follow=True),
    )

    def __init__(self, root: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.start_urls = [f"{root}/"]

    def parse_item(self, response: Response) -> Iterator[Any]:
        yield {"item": response.url.rpartition("/")[2]}


class ShopSitemap(SitemapSpider):
    """Reads the items that a sitemap names."""

    name = "scrapy-sitemap"
    sitemap_rules = (("/item/", "parse_item"),)

    def __init__(self, root: str, **kwargs: Any):
        self.sitemap_urls = [f"{root}/robots.txt"]
        super().__init__(**kwargs)

    def parse_item(self, response: Response) -> Iterator[Any]:
        yield {"item": response.url.rpartition("/")[2]}


class ShopXml(XMLFeedSpider):
    """Reads the nodes of a feed."""

    name = "scrapy-xml"
    itertag = "offer"

    def __init__(self, root: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.start_urls = [f"{root}/feed.xml"]

    def parse_node(self, response: Response, selector: Selector) -> dict[str, str | None]:
        return {"item": selector.xpath("@name").get()}


class ShopCsv(CSVFeedSpider):
    """Reads the rows of a table."""

    name = "scrapy-csv"

    def __init__(self, root: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.start_urls = [f"{root}/feed.csv"]

    def parse_row(self, response: Response, row: dict[str, str]) -> dict[str, str]:
        return {"item": row["name"]}
