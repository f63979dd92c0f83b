import scrapy

from exports import SITE
from exports.items import Quote, Writer


class ExportsSpider(scrapy.Spider):
    name = "exports"
    start_urls = [f"{SITE}/quotes/"]
    day = "monday"

    def parse(self, response):
        for quote in response.css("div.quote"):
            yield Quote(
                text=quote.css("span.text::text").get(), author=quote.css("small::text").get()
            )
        yield from response.follow_all(css="li.next a")
        if not response.css("li.next a"):
            yield response.follow("/author/0", self.parse_writer)

    def parse_writer(self, response):
        yield Writer(
            name=response.css("h3::text").get().strip(),
            born=response.css(".author-born-date::text").get(),
        )
