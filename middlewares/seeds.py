"""Spider middleware: requests of an ordinary spider have the seed of the page they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import NotConfigured
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware

from krowlspider.job.parts import keeps_pages

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


class SeedMiddleware(BaseSpiderMiddleware):
    """Copies ``krowl_seed`` in the meta of a response to the requests of its callback. The broad
    spider does it itself.

    :raises NotConfigured: no rows are kept
    """

    def __init__(self, crawler: Crawler):
        if not keeps_pages(crawler.settings):
            raise NotConfigured
        super().__init__(crawler)

    def get_processed_request(self, request: Request, response: Response | None) -> Request:
        if response is not None and (seed := response.meta.get("krowl_seed")):
            request.meta.setdefault("krowl_seed", seed)
        return request
