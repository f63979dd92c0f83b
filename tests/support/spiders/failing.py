"""A spider whose start fails after its first request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response


class FailingSpider(scrapy.Spider):
    """Queues one request; then its start raises."""

    name = "failing"

    def __init__(self, root: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.root = root

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(f"{self.root}/")
        raise ValueError("a start of a user may fail")

    def parse(self, response: Response) -> None:
        pass
