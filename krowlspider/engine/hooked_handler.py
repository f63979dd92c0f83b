"""Hooks that have a response in place of an exchange. Imported only with KROWL_HOOKS."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from krowlspider.engine.handler import DownloadHandler
from krowlspider.fetch.errors import FetchError, TooLarge
from krowlspider.fetch.memory import FetchMemory
from krowlspider.job.answers.retries import as_scrapy

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.job.hooking.page_hooks import PageHooks
    from krowlspider.job.in_flight import InFlight


class HookedHandler(DownloadHandler):
    """Ask `Hooks.request_robots` and `Hooks.fetch` before another handler fetches."""

    def __init__(self, crawler: Crawler, handler: DownloadHandler):
        super().__init__(crawler)
        self._inner = handler

    async def download_request(self, request: Request) -> Response:
        in_flight, hooks = self._flights.get(request), self._hooks
        assert in_flight is not None
        assert hooks is not None
        response = None
        if in_flight.robots_fetch is not None:
            response = await hooks.given_robots(in_flight, request)
        elif hooks.fetch is not None and not in_flight.is_head:
            response = await self._by_hook(hooks, request, in_flight)
        return await self._inner.download_request(request) if response is None else response

    async def _by_hook(
        self, hooks: PageHooks, request: Request, in_flight: InFlight
    ) -> Response | None:
        """Return the response of `Hooks.fetch`; None without one.

        The host's address is checked before, and its delay counts as for a fetch. The response is
        not archived: the archive has what was on the wire.

        :raises AddressBusy: the request may not go to the host's address now
        """
        frontier = self._job.frontier
        try:
            await self._job.fetching.client.permit(
                self._inner.origin_of(in_flight.url),
                request.meta.get("download_timeout", self._timeout),
                self._job.admission(in_flight.host, is_page=True),
                linked=frontier.linked_ports.is_linked(in_flight.host.name),
            )
        except FetchError as error:
            raise as_scrapy(error) from error
        memory = FetchMemory(self._job.memory)
        begun = perf_counter()
        response = await hooks.fetched(in_flight, request)
        if response is None:
            return None
        most = self._size_limit(request)
        if most and len(response.body) > most:
            failure = TooLarge(f"the hook fetch returned more than {most:,} bytes")
            raise as_scrapy(failure) from failure
        request.meta["download_latency"] = perf_counter() - begun
        # From here on the host counts as asked.
        in_flight.memory = memory
        memory.resize(len(response.body))
        await self._throttle()
        in_flight.received = len(response.body)
        self._count_answer(response.status, len(response.body))
        self._count("krowl/archive/left_out_count")
        return response.replace(url=in_flight.url, request=request)

    async def close(self) -> None:
        await self._inner.close()
