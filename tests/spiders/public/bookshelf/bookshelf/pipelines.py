import json
from pathlib import Path

from itemadapter import ItemAdapter
from scrapy.exceptions import DropItem

from bookshelf.items import Book


class PricePipeline:
    """Adds the tax, and drops what has no price."""

    tax = 1.07

    def process_item(self, item):
        if isinstance(item, Book):
            if not item.price:
                raise DropItem("no price")
            item.price = round(item.price * self.tax, 2)
        return item


class PerSpiderWriter:
    """Writes the items of each spider to a file of its own."""

    def __init__(self, spider):
        self.path = Path("out") / f"{spider}.jsonl"

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.spidercls.name)

    def open_spider(self):
        self.path.parent.mkdir(exist_ok=True)
        self.file = self.path.open("w", encoding="utf-8")

    def close_spider(self):
        self.file.close()

    def process_item(self, item):
        self.file.write(json.dumps(ItemAdapter(item).asdict()) + "\n")
        return item
