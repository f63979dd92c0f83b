"""Rules that rewrite and drop links and requests."""

from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from catalogue import SITE


class CatalogueSpider(CrawlSpider):
    name = "catalogue"
    start_urls = [f"{SITE}/books/"]
    rules = (
        Rule(
            LinkExtractor(restrict_css="li.next"),
            process_links=lambda links: [link for link in links if "page=3" not in link.url],
            process_request="later",
        ),
        Rule(
            LinkExtractor(allow=r"/book/"),
            callback="parse_book",
            process_links="without_extension",
            process_request="even",
            cb_kwargs={"kind": "book"},
        ),
    )

    def parse_start_url(self, response):
        yield {"start": response.url[len(SITE) :]}

    def without_extension(self, links):
        for link in links:
            link.url = link.url.replace("/book/", "/BOOK/")
        return links

    def later(self, request, response):
        return request.replace(priority=-1, headers={"Referer": response.url})

    def even(self, request, response):
        number = int(request.url.rpartition("/")[2].partition(".")[0])
        if number % 2:
            return None
        url = request.url.replace("/BOOK/", "/book/")
        return request.replace(url=url, meta={**request.meta, "list": response.url})

    def parse_book(self, response, kind):
        yield {
            "kind": kind,
            "title": response.css("h1::text").get(),
            "list": response.meta["list"][len(SITE) :],
            "rule": response.meta["rule"],
        }
