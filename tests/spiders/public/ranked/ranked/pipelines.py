from itemadapter import ItemAdapter
from scrapy import Request
from scrapy.http.request import NO_CALLBACK

from ranked import SITE


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
