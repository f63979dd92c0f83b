"""The request runner: one task carries each request through downloader and scraper.

Scrapy's engine does the same with two tasks and ten Deferreds for each request, which is slower.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from scrapy import Request, signals
from scrapy.http import Response
from scrapy.utils.log import logformatter_adapter
from twisted.python.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy.core.engine import ExecutionEngine

# The logger of Scrapy's engine, so that log lines keep their name.
logger = logging.getLogger("scrapy.core.engine")


class RequestRunner:
    """Replaces `ExecutionEngine._start_scheduled_request`, with the same steps in the same order.

    ``active`` holds the requests that are with the downloader; ``download`` removes them from it.
    """

    def __init__(
        self,
        engine: ExecutionEngine,
        active: set[Request],
        download: Callable[[Request], Awaitable[Response | Request]],
    ):
        self._engine = engine
        self._active = active
        self._download = download
        self._loop = asyncio.get_running_loop()
        # The event loop itself holds only weak references to tasks.
        self._tasks: dict[Request, asyncio.Task[None]] = {}

    def start_request(self) -> bool:
        """Send the scheduler's next request; return False if it has none."""
        engine, slot = self._engine, self._engine._slot
        assert slot is not None
        request = slot.scheduler.next_request()
        if request is None:
            engine.signals.send_catch_log(signals.scheduler_empty)
            return False
        slot.add_request(request)
        self._active.add(request)
        self._tasks[request] = self._loop.create_task(self._carry(request))
        return True

    async def _carry(self, request: Request) -> None:
        slot = self._engine._slot
        assert slot is not None
        try:
            result = await self._downloaded(request)
            # The downloader has room for another request.
            slot.nextcall.schedule()
            if isinstance(result, Request):
                self._engine.crawl(result)
            else:
                await self._scrape(result, request)
        except Exception:
            logger.exception(
                "Error while handling downloader output", extra={"spider": self._engine.spider}
            )
        finally:
            del self._tasks[request]
            slot.remove_request(request)
            slot.nextcall.schedule()

    async def _downloaded(self, request: Request) -> Response | Request | Failure:
        engine = self._engine
        try:
            result = await self._download(request)
        except Exception:  # noqa: BLE001 - whatever it is, the errback is told
            return Failure()
        if isinstance(result, Response):
            if result.request is None:
                result.request = request
            assert engine.spider is not None
            if said := engine.logformatter.crawled(result.request, result, engine.spider):
                logger.log(*logformatter_adapter(said), extra={"spider": engine.spider})
            engine.signals.send_catch_log(
                signals.response_received,
                response=result,
                request=result.request,
                spider=engine.spider,
            )
        return result

    async def _scrape(self, result: Response | Failure, request: Request) -> None:
        scraper = self._engine.scraper
        slot = scraper.slot
        assert slot is not None
        # Scrapy's queue of responses is filled and emptied at once, so that its counts are right.
        slot.add_response_request(result, request)
        slot.next_response_request_deferred()
        try:
            await scraper._scrape(result, request)
        finally:
            slot.finish_response(result, request)
            scraper._check_if_closing()
