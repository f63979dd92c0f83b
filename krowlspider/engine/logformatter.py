"""Log lines for pages and items."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy.logformatter import LogFormatter as ScrapyLogFormatter
from scrapy.utils.log import get_scrapy_root_handler

if TYPE_CHECKING:
    from scrapy.logformatter import LogFormatterResult


class LogFormatter(ScrapyLogFormatter):
    """Scrapy's formatter, but without lines for pages and items that the log would not show.

    Scrapy opens its root logger to every level and lets a handler filter. So each such line would
    be formatted and then thrown away.
    """

    # Scrapy takes None for nothing to log.
    def crawled(self, *page: Any) -> LogFormatterResult | None:  # type: ignore[override]
        return super().crawled(*page) if shows_pages() else None

    def scraped(self, *item: Any) -> LogFormatterResult | None:  # type: ignore[override]
        return super().scraped(*item) if shows_pages() else None


def shows_pages() -> bool:
    """Return whether the log has a line for each page and item."""
    handler = get_scrapy_root_handler()
    # Without Scrapy's handler, somebody else decides what is shown.
    return handler is None or handler.level <= logging.DEBUG
