"""A spider whose callback logs in every way that there is, and fails."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import scrapy
from twisted.internet.defer import fail

if TYPE_CHECKING:
    from scrapy.http import Response


class ComplainingSpider(scrapy.Spider):
    """Fetches one page."""

    name = "complaining"

    def __init__(self, url: str):
        super().__init__()
        self.start_urls = [url]

    def parse(self, response: Response) -> None:
        self.logger.warning("Bytes of %s: %d", response.url, len(response.body))
        warnings.warn("an old way", UserWarning, stacklevel=1)
        # Nobody handles it.
        fail(OSError("a lost Deferred"))
        raise ValueError("two\nlines: \u2028 \udcff")
