"""Log lines for pages and items."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy.logformatter import LogFormatter as ScrapyLogFormatter
from scrapy.utils.log import get_scrapy_root_handler

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.http import Response
    from scrapy.logformatter import LogFormatterResult
    from twisted.python.failure import Failure


class LogFormatter(ScrapyLogFormatter):
    """Scrapy's formatter, but without lines for pages and items that the log would not show.

    Scrapy opens its root logger to every level and lets a handler filter. So each such line would
    be formatted and then thrown away.
    """

    def crawled(  # type: ignore[override]  # Scrapy takes None for nothing to say
        self, request: Request, response: Response, spider: Spider
    ) -> LogFormatterResult | None:
        return super().crawled(request, response, spider) if shows_pages() else None

    def scraped(  # type: ignore[override]
        self, item: Any, response: Response | Failure | None, spider: Spider
    ) -> LogFormatterResult | None:
        return super().scraped(item, response, spider) if shows_pages() else None


def shows_pages() -> bool:
    """Return whether the log has a line for each page and item."""
    handler = get_scrapy_root_handler()
    # Without Scrapy's handler, somebody else decides what is shown.
    return handler is None or handler.level <= logging.DEBUG
