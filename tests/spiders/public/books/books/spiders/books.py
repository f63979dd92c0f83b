"""Books with their covers: an item loader, and Scrapy's pipeline of images."""

import scrapy

from books import SITE
from books.items import BookLoader


class BooksSpider(scrapy.Spider):
    name = "books"
    start_urls = [f"{SITE}/books/"]

    def parse(self, response):
        for article in response.css("article"):
            yield response.follow(article.css("h3 a")[0], callback=self.parse_book)
        yield from response.follow_all(css="li.next a")

    def parse_book(self, response):
        loader = BookLoader(response=response)
        loader.add_css("title", "h1::text")
        loader.add_css("price", ".price_color::text")
        loader.add_css("stock", ".availability::text")
        loader.add_value("url", response.url)
        loader.add_value("image_urls", response.urljoin(response.css("img::attr(src)").get()))
        yield loader.load_item()
