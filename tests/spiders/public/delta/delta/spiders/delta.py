import sqlite3
from contextlib import closing
from pathlib import Path

import scrapy

from delta import SITE


class DeltaSpider(scrapy.Spider):
    """Its start URLs are the rows of a database."""

    name = "delta"
    custom_settings = {"DEPTH_STATS_VERBOSE": True, "RETRY_TIMES": 1}

    async def start(self):
        with closing(sqlite3.connect(":memory:")) as database:
            database.executescript(Path("pages.sql").read_text())
            rows = database.execute("SELECT key, path FROM page ORDER BY key")
            for key, path in rows:
                yield scrapy.Request(SITE + path, cb_kwargs={"key": key}, dont_filter=True)

    def parse(self, response, key):
        for number, link in enumerate(response.css("h3 a")):
            # Every other page is known by a key of its own.
            meta = {"delta_key": f"{key}/{number}"} if number % 2 else {}
            yield response.follow(link, self.parse_book, meta=meta)

    def parse_book(self, response):
        yield {"title": response.css("h1::text").get(), "key": response.meta.get("delta_key")}
