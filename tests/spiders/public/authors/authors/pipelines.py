import sqlite3

from itemadapter import ItemAdapter
from scrapy.exceptions import DropItem


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
