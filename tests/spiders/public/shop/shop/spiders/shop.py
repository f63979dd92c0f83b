"""A shop by rules, with contracts that ``scrapy check`` checks."""

from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from shop import SITE


class ShopSpider(CrawlSpider):
    name = "shop"
    allowed_domains = ["127.0.0.1"]
    start_urls = [f"{SITE}/books/"]
    rules = (
        Rule(LinkExtractor(restrict_css="li.next")),
        Rule(
            LinkExtractor(allow=r"/book/\d+\.html", deny=r"/book/7"),
            callback="parse_book",
            follow=True,
            errback="missing",
        ),
    )

    def parse_book(self, response):
        yield {
            "title": response.css("h1::text").get(),
            "from": response.meta["link_text"],
            "referer": response.request.headers.get("Referer", b"").decode(),
        }

    parse_book.__doc__ = f"""Reads the page of a book.

    @url {SITE}/book/1.html
    @meta {{"link_text": "book"}}
    @returns items 1 1
    @returns requests 0 0
    @scrapes title from
    """

    def missing(self, failure):
        yield {"missing": failure.request.url[len(SITE) :], "status": failure.value.response.status}
