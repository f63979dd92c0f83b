"""A spider whose requests end in every way a request can end in Scrapy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy import Request
    from twisted.python.failure import Failure


class EndingsSpider(scrapy.Spider):
    """One request for each path; a callback or errback for each kind of end."""

    name = "endings"

    def __init__(self, root: str, direct: str = "1", **kwargs: Any):
        super().__init__(**kwargs)
        self.root = root
        self.has_direct = direct == "1"

    async def start(self) -> AsyncIterator[Any]:
        ends = {
            "/generator": self.generator,
            "/async": self.async_generator,
            "/coroutine": self.coroutine,
            "/raises": self.raises,
            "/nothing": self.nothing,
            "/gone": self.nothing,
            "/moved": self.nothing,
            "/ignored": self.nothing,
            "/answered": self.nothing,
            "/replaced": self.nothing,
        }
        if self.has_direct:
            ends["/direct"] = self.direct
        for path, callback in ends.items():
            yield scrapy.Request(self.root + path, callback)
        yield scrapy.Request(f"{self.root}/cut", self.nothing, errback=self.errback)
        yield scrapy.Request(
            f"{self.root}/huge",
            self.nothing,
            errback=self.bad_errback,
            meta={"download_maxsize": 10},
        )

    def generator(self, response: Response) -> Iterator[Any]:
        yield {"end": "generator"}

    async def async_generator(self, response: Response) -> AsyncIterator[Any]:
        yield {"end": "async"}

    async def coroutine(self, response: Response) -> list[Any]:
        return [{"end": "coroutine"}]

    def raises(self, response: Response) -> Iterator[Any]:
        yield {"end": "before the exception"}
        raise ValueError("a callback of a user may fail")

    def nothing(self, response: Response) -> None:
        pass

    async def direct(self, response: Response) -> AsyncIterator[Any]:
        request = scrapy.Request(f"{self.root}/awaited")
        found = await self.crawler.engine.download_async(request)
        yield {"end": f"direct download {found.status}"}

    def errback(self, failure: Failure) -> Iterator[Any]:
        yield {"end": f"errback {failure.type.__name__}"}

    def bad_errback(self, failure: Failure) -> None:
        raise ValueError("an errback of a user may fail")


class EndingMiddleware:
    """Ends requests before they are sent."""

    def process_request(self, request: Request) -> Response | scrapy.Request | None:
        if request.url.endswith("/ignored"):
            raise IgnoreRequest("by the test")
        if request.url.endswith("/answered"):
            return Response(request.url, body=b"made up")
        if request.url.endswith("/replaced"):
            return request.replace(url=request.url.replace("/replaced", "/replacement"))
        return None
