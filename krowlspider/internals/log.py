"""Scrapy's log: the formatter of its handler. Scrapy lets settings choose only its text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.utils import log

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from scrapy.settings import BaseSettings, Settings

_scrapys = log._get_formatter


def format_by(formatter_of: Callable[[BaseSettings], logging.Formatter | None]) -> None:
    """Make the handlers that Scrapy installs from now on use the formatter that ``formatter_of``
    returns for their settings; Scrapy's own if that is None."""

    def get_formatter(handler: logging.Handler, settings: Settings) -> logging.Formatter:
        return formatter_of(settings) or _scrapys(handler, settings)

    log._get_formatter = get_formatter
