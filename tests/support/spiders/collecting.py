"""A spider whose items have files, downloaded by Scrapy's pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response


class CollectingSpider(scrapy.Spider):
    """Yields one item a page, with the files that the page links to."""

    name = "collecting"
    custom_settings = {
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
        "MEDIA_ALLOW_REDIRECTS": True,
    }

    def __init__(self, root: str, pages: str = "1", **kwargs: Any):
        super().__init__(**kwargs)
        self.root = root
        self.pages = int(pages)

    async def start(self) -> AsyncIterator[Any]:
        for number in range(self.pages):
            yield scrapy.Request(f"{self.root}/page/{number}")

    def parse(self, response: Response) -> Iterator[Any]:
        links = response.css("a::attr(href)").getall()
        yield {"page": response.url, "file_urls": [response.urljoin(link) for link in links]}
