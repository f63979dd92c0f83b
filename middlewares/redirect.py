"""Downloader middleware: redirects of ordinary spiders. The broad spider's are links like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares.redirect import RedirectMiddleware as ScrapyRedirectMiddleware

from krowlspider.urls.length import fits

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response


class RedirectMiddleware(ScrapyRedirectMiddleware):
    """Scrapy's own: the target goes back to the scheduler, and so through robots.txt and politeness.

    Without a Referer, as the project sends none. A target too long to be parsed is counted, and the
    answer goes to the spider, as Scrapy has it with one that is no http(s) URL.
    """

    def process_response(  # type: ignore[override]  # Scrapy's ``spider`` is deprecated
        self, request: Request, response: Response
    ) -> Request | Response:
        location = response.headers.get(b"Location")
        if location is not None and not fits(location.decode("utf-8", errors="replace")):
            self.crawler.stats.inc_value("krowl/links/left_count/length")
            return response
        return super().process_response(request, response)

    def handle_referer(self, request: Request, response: Response) -> None:
        request.headers.pop("Referer", None)

    def _engine_started(self) -> None:
        """Scrapy's asks here for a Referer middleware; this one needs none."""
