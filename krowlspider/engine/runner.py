"""The request runner: one task carries each request through downloader and scraper.

Scrapy's engine does the same with two tasks and ten Deferreds for each request, which is slower.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.utils.log import logformatter_adapter
from twisted.python.failure import Failure

from krowlspider.internals.engine import scrape, slot_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from scrapy.core.engine import ExecutionEngine

    from krowlspider.engine.awaited import AwaitedRequests

# The logger of Scrapy's engine, so that log lines keep their name.
logger = logging.getLogger("scrapy.core.engine")


class RequestRunner:
    """Takes the steps of Scrapy's engine for each request, in the same order.

    ``active`` holds the requests that are with the downloader; ``download`` removes them from it.
    After each request that ends, those that ``needless`` returns are cancelled.
    """

    def __init__(
        self,
        engine: ExecutionEngine,
        active: set[Request],
        download: Callable[[Request], Awaitable[Response | Request]],
        awaited: AwaitedRequests,
        needless: Callable[[], Sequence[Request]],
    ):
        self._engine = engine
        self._slot = slot_of(engine)
        self._active = active
        self._download = download
        self._awaited = awaited
        self._needless = needless
        self._loop = asyncio.get_running_loop()
        # The event loop itself holds only weak references to tasks.
        self._tasks: dict[Request, asyncio.Task[None]] = {}

    def start_request(self) -> bool:
        """Send the scheduler's next request; return False if it has none."""
        request = self._slot.scheduler.next_request()
        if request is None:
            self._engine.signals.send_catch_log(signals.scheduler_empty)
            return False
        self.start(request)
        return True

    def start(self, request: Request) -> None:
        """Send a request that the scheduler has popped."""
        self._slot.add_request(request)
        self._active.add(request)
        self._tasks[request] = self._loop.create_task(self._carry(request))

    async def _carry(self, request: Request) -> None:
        try:
            result = await self._downloaded(request)
            # The downloader has room for another request.
            self._slot.nextcall.schedule()
            if self._awaited.sent and self._awaited.settle(request, result):
                return
            if result is request:
                self._put_back(request)
            elif isinstance(result, Request):
                self._engine.crawl(result)
            else:
                await scrape(self._engine.scraper, result, request)
        except Exception:
            logger.exception(
                "Error while handling downloader output", extra={"spider": self._engine.spider}
            )
        finally:
            del self._tasks[request]
            self._slot.remove_request(request)
            for other in self._needless():
                self._tasks[other].cancel()
            self._slot.nextcall.schedule()

    def _put_back(self, request: Request) -> None:
        """Report a request that is back in its queue, as Scrapy does."""
        self._engine.signals.send_catch_log(
            signals.request_scheduled,
            request=request,
            spider=self._engine.spider,
            dont_log=IgnoreRequest,
        )

    async def _downloaded(self, request: Request) -> Response | Request | Failure:
        try:
            result = await self._download(request)
        except Exception:  # noqa: BLE001 - whatever it is, the errback receives it
            return Failure()
        # Scrapy's engine reports the responses of awaited requests itself.
        if isinstance(result, Response) and request not in self._awaited.sent:
            self._report(result, request)
        return result

    def _report(self, response: Response, request: Request) -> None:
        engine = self._engine
        assert engine.spider is not None
        if response.request is None:
            response.request = request
        if line := engine.logformatter.crawled(response.request, response, engine.spider):
            logger.log(*logformatter_adapter(line), extra={"spider": engine.spider})
        engine.signals.send_catch_log(
            signals.response_received,
            response=response,
            request=response.request,
            spider=engine.spider,
        )
