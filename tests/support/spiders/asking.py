"""A spider that asks in the ways that a crawl from seeds does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response

BODY = bytes(range(256)) + b"\r\n\r\nPOST / HTTP/1.1\r\n"


class AskingSpider(scrapy.Spider):
    """HEAD, POST, and GET with ``tag`` as If-None-Match, each of a path of its own."""

    name = "asking"

    def __init__(self, root: str, tag: str = '"x"', **kwargs: Any):
        super().__init__(**kwargs)
        self.root, self.tag = root, tag

    async def start(self) -> AsyncIterator[Any]:
        meta = {"handle_httpstatus_all": True}
        yield scrapy.Request(f"{self.root}/head", method="HEAD", meta=meta)
        yield scrapy.Request(f"{self.root}/post", method="POST", body=BODY, meta=meta)
        yield scrapy.Request(f"{self.root}/same", headers={"If-None-Match": self.tag}, meta=meta)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "status": response.status, "bytes": len(response.body)}
