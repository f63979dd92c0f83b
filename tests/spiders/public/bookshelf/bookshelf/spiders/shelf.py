import scrapy

from bookshelf import SITE
from bookshelf.loaders import BookLoader


class ShelfSpider(scrapy.Spider):
    """``-a stock`` is the least number of copies, ``-a pages`` how many pages of the list."""

    name = "shelf"
    custom_settings = {"CONCURRENT_ITEMS": 4}

    def __init__(self, stock="0", pages=None, **kwargs):
        super().__init__(**kwargs)
        self.least = int(stock)
        self.pages = int(pages) if pages else None

    async def start(self):
        yield scrapy.Request(f"{SITE}/books/", cb_kwargs={"page": 1})

    def parse(self, response, page):
        yield from response.follow_all(css="article h3 a", callback=self.parse_book)
        if self.pages is None or page < self.pages:
            for link in response.css("li.next a"):
                yield response.follow(link, cb_kwargs={"page": page + 1})

    def parse_book(self, response):
        loader = BookLoader(response=response)
        loader.add_css("title", "h1::text")
        loader.add_css("price", ".price_color::text")
        loader.add_css("stock", ".availability::text", re=r"\d+")
        loader.add_value("tags", ["Paper", self.name])
        item = loader.load_item()
        if item.stock >= self.least:
            yield item
