"""A spider that listens to a download as it comes, and stops some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy
from scrapy import signals
from scrapy.exceptions import StopDownload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Headers, Response
    from twisted.python.failure import Failure


class ListeningSpider(scrapy.Spider):
    """Says what a response has, and ends ``/stopped`` and ``/failed`` when their first bytes are
    there."""

    name = "listening"

    def __init__(self, root: str, secure: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.root, self.secure = root, secure
        self.lengths: dict[str, int | None] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.on_headers, signals.headers_received)
        crawler.signals.connect(spider.on_bytes, signals.bytes_received)
        return spider

    async def start(self) -> AsyncIterator[Any]:
        for url in (f"{self.root}/plain", f"{self.root}/stopped", f"{self.secure}/plain"):
            yield scrapy.Request(url)
        yield scrapy.Request(f"{self.root}/failed", errback=self.failed)
        yield scrapy.Request(
            f"{self.root}/slow", errback=self.failed, meta={"download_timeout": 0.3}
        )

    def on_headers(self, headers: Headers, body_length: int | None, request: Any) -> None:
        self.lengths[request.url] = body_length

    def on_bytes(self, data: bytes, request: Any) -> None:
        if request.url.endswith("/stopped"):
            raise StopDownload(fail=False)
        if request.url.endswith("/failed"):
            raise StopDownload(fail=True)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {
            "url": response.url,
            "ip": str(response.ip_address),
            "protocol": response.protocol,
            "certificate": response.certificate is not None,
            "flags": response.flags,
            "declared": self.lengths[response.url],
            "got": len(response.body),
        }

    def failed(self, failure: Failure) -> Iterator[Any]:
        request: Any = failure.request  # type: ignore[attr-defined]
        yield {"url": request.url, "error": failure.type.__name__}
