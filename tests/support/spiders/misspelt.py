"""A spider with the misspelt name of a setting, and a name of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Misspelt(scrapy.Spider):
    name = "misspelt"
    custom_settings = {"DOWNLAOD_DELAY": 1, "MY_DELAY": 2}
    url: str

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(self.url)

    def parse(self, response: Any) -> None:
        pass
