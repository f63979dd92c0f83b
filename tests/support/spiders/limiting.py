"""A spider that sets the size limit of its requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import scrapy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response
    from twisted.python.failure import Failure


class LimitingSpider(scrapy.Spider):
    """Asks for the URL with each limit, and yields the length of each body, 0 for none."""

    name = "limiting"

    def __init__(self, url: str, limits: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.url = url
        self.limits = json.loads(limits)

    async def start(self) -> AsyncIterator[Any]:
        for limit in self.limits:
            yield scrapy.Request(
                self.url,
                self.parse,
                dont_filter=True,
                errback=self.failed,
                meta={"download_maxsize": limit},
            )

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"limit": response.meta["download_maxsize"], "bytes": len(response.body)}

    def failed(self, failure: Failure) -> Iterator[Any]:
        yield {"limit": failure.request.meta["download_maxsize"], "bytes": 0}
