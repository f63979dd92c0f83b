"""Authors into a database."""

import scrapy

from authors import SITE


class AuthorsSpider(scrapy.Spider):
    name = "authors"
    start_urls = [f"{SITE}/quotes/", f"{SITE}/quotes/page/2/"]

    def parse(self, response):
        for link in response.css(".author + a"):
            yield response.follow(link, self.parse_author, dont_filter=True)

    def parse_author(self, response):
        yield {
            "name": response.css("h3.author-title::text").get().strip(),
            "born": response.css(".author-born-date::text").get(),
            "url": response.url[len(SITE) :],
        }
