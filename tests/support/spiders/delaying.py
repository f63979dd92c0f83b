"""A spider that sets delays in Scrapy's ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response

DELAYS = {"a.test": 0.4, "b.test": 0.6}


class DelayingSpider(scrapy.Spider):
    """Fetches two pages of each URL in ``urls``."""

    name = "delaying"
    download_delay = DELAYS["a.test"]
    max_concurrent_requests = 8
    custom_settings = {
        "DOWNLOAD_SLOTS": {"b.test": {"delay": DELAYS["b.test"], "concurrency": 2}},
        "AUTOTHROTTLE_ENABLED": True,
        "AUTOTHROTTLE_START_DELAY": 4,
    }

    def __init__(self, urls: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.urls = urls.split()

    async def start(self) -> AsyncIterator[Any]:
        for url in self.urls:
            for number in range(2):
                yield scrapy.Request(f"{url}{number}", meta={"download_slot": "mine"})

    def parse(self, response: Response) -> None:
        pass
