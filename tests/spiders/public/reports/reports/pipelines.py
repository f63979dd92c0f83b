from itemadapter import ItemAdapter
from scrapy.exceptions import DropItem


class CompletePipeline:
    """Drops items that lack one of REPORT_FIELDS."""

    def __init__(self, fields):
        self.fields = fields

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.settings.getlist("REPORT_FIELDS"))

    async def process_item(self, item):
        if not all(ItemAdapter(item).get(field) for field in self.fields):
            raise DropItem("incomplete")
        return item
