"""The pipelines of the projects."""

import sqlite3
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from itemadapter import ItemAdapter
from scrapy import Request
from scrapy.exceptions import DropItem
from scrapy.http.request import NO_CALLBACK
from scrapy.pipelines.files import FilesPipeline

from tests.spiders.public import SITE


class DuplicatesPipeline:
    """Drops an author that came already."""

    def __init__(self):
        self.seen = set()

    def process_item(self, item):
        name = ItemAdapter(item)["name"]
        if name in self.seen:
            raise DropItem(f"Duplicate author: {name}")
        self.seen.add(name)
        return item


class SQLitePipeline:
    """Writes each item to a table."""

    def __init__(self, path):
        self.path = path

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.settings.get("SQLITE_PATH", "items.db"))

    def open_spider(self):
        self.connection = sqlite3.connect(self.path)
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS author (name TEXT PRIMARY KEY, born INTEGER, url TEXT)"
        )

    def close_spider(self):
        self.connection.commit()
        self.connection.close()

    def process_item(self, item):
        row = ItemAdapter(item)
        self.connection.execute(
            "INSERT INTO author VALUES (?, ?, ?)", (row["name"], int(row["born"]), row["url"])
        )
        return item


class CoverPipeline:
    """Fetches the cover of a book and adds its size."""

    @classmethod
    def from_crawler(cls, crawler):
        pipeline = cls()
        pipeline.crawler = crawler
        return pipeline

    async def process_item(self, item):
        adapter = ItemAdapter(item)
        if adapter.get("cover"):
            request = Request(f"{SITE}{adapter['cover']}", callback=NO_CALLBACK)
            response = await self.crawler.engine.download_async(request)
            adapter["cover_bytes"] = len(response.body)
        return item


class NamedFilesPipeline(FilesPipeline):
    """Keeps the names that files have on the site, in a folder for each book. They may be large."""

    def get_media_requests(self, item, info):
        for url in item["file_urls"]:
            yield Request(url, meta={"download_maxsize": 20_000_000})

    def file_path(self, request, response=None, info=None, *, item=None):
        name = PurePosixPath(unquote(urlsplit(request.url).path)).name
        return f"{item['folder']}/{name.replace(' ', '-')}"
