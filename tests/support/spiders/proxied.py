"""A spider whose requests name proxies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import scrapy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response
    from twisted.python.failure import Failure


class ProxiedSpider(scrapy.Spider):
    """Requests each URL through its proxy; ``pairs`` is a JSON list of both. "" is no proxy."""

    name = "proxied"

    def __init__(self, pairs: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.pairs = json.loads(pairs)

    async def start(self) -> AsyncIterator[Any]:
        for url, proxy in self.pairs:
            meta = {"proxy": proxy} if proxy else {}
            yield scrapy.Request(url, self.parse, errback=self.fail, meta=meta)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {
            "url": response.url,
            "status": response.status,
            "address": str(response.ip_address),
            "body": response.body.decode(),
        }

    def fail(self, failure: Failure) -> Iterator[Any]:
        assert hasattr(failure, "request")
        yield {"url": failure.request.url, "error": failure.getErrorMessage()}
