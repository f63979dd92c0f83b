"""Scrapy's engine, scraper and downloader middlewares: what parts of our own need of them."""

from __future__ import annotations

from functools import cached_property
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.exceptions import _InvalidOutput
from scrapy.http import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeAlias

    from scrapy.core.engine import ExecutionEngine, _Slot
    from scrapy.core.scraper import Scraper
    from twisted.python.failure import Failure

    Scrape: TypeAlias = Callable[[Response | Failure, Request], Coroutine[Any, Any, None]]


def slot_of(engine: ExecutionEngine) -> _Slot:
    """Return the engine's record of the requests under way, from the scheduler's `open` on."""
    assert engine._slot is not None
    return engine._slot


def wake(engine: ExecutionEngine) -> None:
    """Make the engine ask the scheduler for requests in the next turn of the event loop."""
    if engine._slot is not None:
        engine._slot.nextcall.schedule()


def is_closing(engine: ExecutionEngine) -> bool:
    """Return whether the spider is being closed."""
    return engine._slot is not None and engine._slot.closing is not None


def is_starting(engine: ExecutionEngine) -> bool:
    """Return whether the spider's ``start()`` may yield more."""
    return engine._start is not None


def call_when_over(engine: ExecutionEngine, call: Callable[[Request], None]) -> None:
    """Call ``call`` with each request that the engine has finished.

    Scrapy has no signal for it. The slot forgets a request exactly once: when the output of its
    callback or errback is exhausted, or when the replacement that a middleware returned has been
    scheduled. No other place sees every end.
    """
    slot = slot_of(engine)
    forget = slot.remove_request

    def remove_request(request: Request) -> None:
        call(request)
        forget(request)

    slot.remove_request = remove_request  # type: ignore[method-assign]


def start_requests_with(engine: ExecutionEngine, start: Callable[[], bool]) -> None:
    """Make the engine call ``start`` for each request to send. It returns False without one."""
    engine._start_scheduled_request = start  # type: ignore[method-assign]


def wrap_scrape(scraper: Scraper, wrap: Callable[[Scrape], Scrape]) -> None:
    """Replace the coroutine that does all the work on an answer by what ``wrap`` makes of it."""
    scraper._scrape = wrap(scraper._scrape)  # type: ignore[method-assign, assignment]


async def scrape(scraper: Scraper, result: Response | Failure, request: Request) -> None:
    """Do the work on an answer, counted as under way in the scraper."""
    slot = scraper.slot
    assert slot is not None
    # The queue of answers is filled and emptied in one step, so that its counts are right.
    slot.add_response_request(result, request)
    slot.next_response_request_deferred()
    try:
        await scraper._scrape(result, request)
    finally:
        slot.finish_response(result, request)
        scraper._check_if_closing()


async def process_output(scraper: Scraper, output: Any, response: Response | Failure) -> None:
    """Schedule a request, or send an item through the pipelines."""
    await scraper._process_spidermw_output_async(output, response)


class DownloaderMiddlewares(DownloaderMiddlewareManager):
    """Calls ``process_response`` directly as long as all of them are coroutine functions.

    Scrapy looks at each result to learn whether it can be awaited.
    """

    @cached_property
    def _coroutines(self) -> tuple[Callable[..., Any], ...]:
        """Return all methods ``process_response``; none if one of them is no coroutine function."""
        methods = tuple(each for each in self.methods["process_response"] if each is not None)
        if all(
            iscoroutinefunction(each) and each not in self._mw_methods_requiring_spider
            for each in methods
        ):
            return methods
        return ()

    async def _process_response(
        self, response: Response | Request, request: Request
    ) -> Response | Request:
        methods = self._coroutines
        if not methods or response is None:
            return await super()._process_response(response, request)
        for method in methods:
            if isinstance(response, Request):
                break
            response = await method(request=request, response=response)
            if not isinstance(response, (Response, Request)):
                raise _InvalidOutput(
                    f"Middleware {method.__qualname__} must return Response or Request, got"
                    f" {type(response)}"
                )
        return response
