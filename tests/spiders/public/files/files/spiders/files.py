"""Samples of books, stored under names of their own."""

import scrapy

from files import SITE


class FilesSpider(scrapy.Spider):
    name = "files"
    start_urls = [f"{SITE}/book/{number}.html" for number in range(4)]

    def parse(self, response):
        yield {
            "folder": response.css("title::text").get(),
            "file_urls": [
                response.urljoin(href) for href in response.css("a.sample::attr(href)").getall()
            ],
        }
