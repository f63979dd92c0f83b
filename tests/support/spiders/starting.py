"""An ordinary spider whose start requests are Scrapy's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy

from tests.support.crawling import CONTACT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.http import Response


class StartingSpider(scrapy.Spider):
    name = "starting"
    custom_settings = {"KROWL_CONTACT": CONTACT}

    def __init__(self, urls: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.start_urls = urls.split()

    def parse(self, response: Response) -> Iterator[dict[str, Any]]:
        meta = response.meta
        yield {"url": response.url, "depth": meta["depth"], "note": meta.get("note")}
