"""A spider whose requests are of other schemes than http."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response


class SchemesSpider(scrapy.Spider):
    """Yields an item for each answer."""

    name = "schemes"

    def __init__(self, root: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.root = root

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request("data:,")
        for text in ("hi", "hi", "ho"):
            yield scrapy.Request(f"data:text/plain,{text}", self.parse_more, dont_filter=False)
        for url in ("file:///etc/hosts", "file:///etc/passwd", "ftp://a.test/x", "s3://bucket/x"):
            yield scrapy.Request(url)

    def parse_more(self, response: Response) -> Iterator[Any]:
        yield from self.parse(response)
        yield scrapy.Request(f"{self.root}/away", meta={"from": response.text})
        yield scrapy.Request(f"data:,{response.text}{response.text}", meta={"from": response.text})

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "text": response.text, "from": response.meta.get("from")}
