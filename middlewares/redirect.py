"""Downloader middleware: redirects of ordinary spiders. The broad spider's are links like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares.redirect import RedirectMiddleware as ScrapyRedirectMiddleware

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response


class RedirectMiddleware(ScrapyRedirectMiddleware):
    """Scrapy's own: the target goes back to the scheduler, and so through robots.txt and politeness.

    Without a Referer, as the project sends none.
    """

    def handle_referer(self, request: Request, response: Response) -> None:
        request.headers.pop("Referer", None)

    def _engine_started(self) -> None:
        """Scrapy's asks here for a Referer middleware; this one needs none."""
