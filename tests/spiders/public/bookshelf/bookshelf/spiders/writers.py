from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from bookshelf import SITE
from bookshelf.items import Writer


class WritersSpider(CrawlSpider):
    """``-a born_after`` is a year."""

    name = "writers"
    start_urls = [f"{SITE}/quotes/"]
    custom_settings = {"DEPTH_LIMIT": 2}
    rules = [
        Rule(LinkExtractor(restrict_css="li.next")),
        Rule(LinkExtractor(allow=r"/author/"), callback="parse_writer"),
    ]
    born_after = 0

    def parse_writer(self, response):
        writer = Writer(
            name=response.css("h3::text").get().strip(),
            born=response.css(".author-born-date::text").get(),
        )
        if writer.born > int(self.born_after):
            yield writer
