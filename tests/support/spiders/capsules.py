"""A spider of Scrapy's own kind in Gemini."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response
    from twisted.python.failure import Failure


class CapsuleSpider(scrapy.Spider):
    """Asks for three paths below a root; knows nothing of krowlspider."""

    name = "capsules"

    def __init__(self, root: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.root = root

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(f"{self.root}/")

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"kind": "index", "status": response.status, "text": response.text}
        yield response.follow("/moved", self.parse_moved)
        yield response.follow("gone", self.parse_moved, errback=self.on_error)

    def parse_moved(self, response: Response) -> Iterator[Any]:
        yield {"kind": "moved", "url": response.url, "from": response.meta["redirect_urls"]}

    def on_error(self, failure: Failure) -> Iterator[Any]:
        yield {"kind": "error", "status": failure.value.response.status}
