from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class OldSpider(Spider):
    """Has the start of Scrapy before 2.13; with the argument ``item`` it makes an item."""

    name = "old"

    async def start(self) -> AsyncIterator[Any]:
        if hasattr(self, "item"):
            yield {"item": self.item}

    def start_requests(self) -> Iterator[Request]:
        yield Request("http://a.test/")
