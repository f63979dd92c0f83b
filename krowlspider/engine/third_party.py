"""Fetch pages with a download handler of another project, such as one that drives a browser."""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import TYPE_CHECKING

from scrapy.exceptions import DownloadTimeoutError
from scrapy.utils.python import global_object_name

from krowlspider.engine.handler import DownloadHandler
from krowlspider.engine.scheduler import Scheduler
from krowlspider.fetch.errors import FetchError
from krowlspider.fetch.memory import FetchMemory
from krowlspider.job.answers.retries import as_scrapy
from krowlspider.urls.page.headers import PAYMENTS

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.core.downloader.handlers.base import BaseDownloadHandler
    from scrapy.crawler import Crawler
    from scrapy.http import Response

logger = logging.getLogger(__name__)


class ThirdPartyHandler(DownloadHandler):
    """Fetch each robots.txt as the project's own handler does, and pages with another handler;
    a HEAD before a page too is sent by the own one.

    The host's addresses are looked up and checked before each page, but that handler connects by
    itself. Its pages are not archived, because it does not hand over the bytes of the exchange. Of
    the sheets of KROWL_POLICIES it gets headers and the suffix of the User-Agent, no cookies and no
    credentials.
    """

    def __init__(self, crawler: Crawler, handler: BaseDownloadHandler, scheme: str):
        super().__init__(crawler)
        self._pages = handler
        name = global_object_name(type(handler))
        if self._archives:
            logger.warning("%s pages are fetched by %s and are not archived", scheme, name)

    async def download_request(self, request: Request) -> Response:
        """Return the response of the handler, which has ``download_timeout`` seconds.

        :raises DownloadTimeoutError: it took longer
        :raises AddressBusy: the request may not go to the host's address now
        """
        in_flight = self._flights.get(request)
        assert in_flight is not None
        if in_flight.robots_fetch is not None or in_flight.is_head:
            return await super().download_request(request)
        timeout = request.meta.get("download_timeout", self._timeout)
        frontier = self._job.frontier
        try:
            await self._job.fetching.client.permit(
                self.origin_of(in_flight.url),
                timeout,
                self._job.admission(in_flight.host, is_page=True),
                linked=frontier.linked_ports.is_linked(in_flight.host.name),
            )
        except FetchError as error:
            raise as_scrapy(error) from error
        # The User-Agent names who crawls: no request has another.
        Scheduler.of(self.crawler).warnings.of_headers(request)
        request.headers["User-Agent"] = self._job.user_agent
        if self._sites is not None and (policy := self._sites.of(in_flight.url)) is not None:
            # No secret: a request that is tried again is stored with its headers.
            for name, value in self._sites.open_headers(policy).items():
                request.headers[name] = value
        for name in PAYMENTS:
            request.headers.pop(name, None)
        memory = in_flight.memory = FetchMemory(self._job.memory)
        begun = perf_counter()
        try:
            async with asyncio.timeout(timeout or None):
                response = await self._pages.download_request(request)
        except TimeoutError as error:
            raise DownloadTimeoutError(f"{request.url} took longer than {timeout:g} s") from error
        finally:
            # Measured here, because each handler measures another part of it.
            request.meta["download_latency"] = perf_counter() - begun
        memory.resize(len(response.body))
        await self._throttle()
        self._count_answer(response.status, len(response.body))
        return response

    async def close(self) -> None:
        await self._pages.close()
