"""Takes each request from the scheduler to the downloader, and what came of it to the scraper: one task each.

Scrapy's engine does the same with two tasks, ten Deferreds and as many callbacks, 60 µs of each request.
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
    from scrapy.core.engine import ExecutionEngine

    from krowlspider.downloader import Downloader

# As Scrapy names it.
logger = logging.getLogger("scrapy.core.engine")


class Courier:
    """Stands in for `ExecutionEngine._start_scheduled_request`, and does what that does in the same order."""

    def __init__(self, engine: ExecutionEngine, downloader: Downloader):
        self._engine = engine
        self._downloader = downloader
        self._loop = asyncio.get_running_loop()
        # The loop itself holds tasks weakly.
        self._tasks: dict[Request, asyncio.Task[None]] = {}

    def start_request(self) -> bool:
        """Send the scheduler's next request; whether it had one."""
        engine, slot = self._engine, self._engine._slot
        assert slot is not None
        request = slot.scheduler.next_request()
        if request is None:
            engine.signals.send_catch_log(signals.scheduler_empty)
            return False
        slot.add_request(request)
        self._downloader.active.add(request)
        self._tasks[request] = self._loop.create_task(self._carry(request))
        return True

    async def _carry(self, request: Request) -> None:
        slot = self._engine._slot
        assert slot is not None
        try:
            result = await self._downloaded(request)
            # There is room for another.
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
            result = await self._downloader.download(request)
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
        # Its queue holds nothing for longer than this.
        slot.add_response_request(result, request)
        slot.next_response_request_deferred()
        try:
            await scraper._scrape(result, request)
        finally:
            slot.finish_response(result, request)
            scraper._check_if_closing()
