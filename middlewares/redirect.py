"""Downloader middleware: redirects of ordinary spiders.

The broad spider queues the targets of redirects as links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares.redirect import RedirectMiddleware as ScrapyRedirectMiddleware

from krowlspider.urls.canonical import fits

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


class RedirectMiddleware(ScrapyRedirectMiddleware):
    """Scrapy's middleware, but without a Referer, as the project sends none.

    The target goes back to the scheduler, so robots.txt and politeness apply to it. If the target
    is too long to be parsed, it is counted and the spider receives the response. Scrapy does the
    same with a target that is no http(s) URL.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        # Scrapy's version would look for a middleware that sets the Referer.
        middleware = cls(crawler.settings)
        middleware.crawler = crawler
        return middleware

    def process_response(  # type: ignore[override]  # Scrapy's ``spider`` is deprecated
        self, request: Request, response: Response
    ) -> Request | Response:
        location = response.headers.get(b"Location")
        if location is not None and not fits(location.decode("utf-8", errors="replace")):
            self.crawler.stats.inc_value("krowl/links/left_count/length")
            return response
        return super().process_response(request, response)
