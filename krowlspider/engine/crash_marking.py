"""Crash marks: each step of the work on a page runs under the page's mark.

If the process dies in a step, the next start reads the mark and knows the page. The work on a page
is all that Scrapy's scraper does with its answer: callback or errback, spider middlewares and item
pipelines, in one task and the tasks that it starts. A step is what runs from one ``await`` to the
next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Generator
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from scrapy.http import Response
from scrapy.utils.asyncgen import as_async_generator
from twisted.python.failure import Failure

from krowlspider.frontier.work_mark import NOTHING
from krowlspider.internals.engine import process_output, wrap_scrape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy import Request
    from scrapy.core.scraper import Scraper

    from krowlspider.frontier.work_mark import WorkMark
    from krowlspider.internals.engine import Scrape
    from krowlspider.job.in_flight import InFlight
    from krowlspider.job.job import Job

_T = TypeVar("_T")
# Seconds for which a callback's output may hold one turn of the event loop.
_TURN = 0.01


class Marked(Generator[Any, Any, _T]):
    """A coroutine that runs each of its steps under a mark."""

    def __init__(self, coroutine: Coroutine[Any, Any, _T], mark: WorkMark, page: bytes):
        self._coroutine = coroutine
        self._mark = mark
        self._page = page

    def __await__(self) -> Generator[Any, Any, _T]:
        return self

    def send(self, value: Any) -> Any:
        return self._mark.during(self._page, self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._mark.during(self._page, self._coroutine.throw, *error)


class _Timed(Marked[_T]):
    """``spent`` sums the CPU seconds of the steps, without what others take from a busy machine."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, _T],
        mark: WorkMark,
        page: bytes,
        cpu: Callable[[], float],
    ):
        super().__init__(coroutine, mark, page)
        self._cpu = cpu
        self.spent = 0.0

    def send(self, value: Any) -> Any:
        begun = self._cpu()
        try:
            return self._mark.during(self._page, self._coroutine.send, value)
        finally:
            self.spent += self._cpu() - begun

    def throw(self, *error: Any) -> Any:
        begun = self._cpu()
        try:
            return super().throw(*error)
        finally:
            self.spent += self._cpu() - begun


@runtime_checkable
class PageReader(Protocol):
    """A spider that yields nothing for some requests.

    Answers to these requests skip Scrapy's spider middlewares, whose nested generators and two
    turns of the event loop are costly for each answer.
    """

    def only_reads(self, request: Request) -> bool:
        """Return whether the callback does no more than `read`.

        True only if nobody is to see what the callback yields.
        """

    async def read(self, response: Response) -> Any: ...


def mark_work(
    scraper: Scraper,
    job: Job,
    in_flight_of: Callable[[Request], InFlight | None],
    reader: PageReader | None = None,
    charge: Callable[[Request, float], None] | None = None,
) -> None:
    """Make a scraper run each step of its work on a page under the page's mark.

    ``reader`` is the spider if it is a `PageReader`; it then reads its pages itself. ``charge`` is
    called with the request and the CPU seconds of each page of such a spider.

    Scrapy has no hook around the steps of a callback. It iterates the output in one task, feeds the
    pipelines in others and runs an ``async def`` callback in one more. So the first task is
    wrapped, and a task that starts within a page's step gets the page's mark too.
    """

    def marked(scrape: Scrape) -> Scrape:
        async def scrape_marked(result: Response | Failure, request: Request) -> None:
            if reader and isinstance(result, Response) and reader.only_reads(request):
                work: Any = _read(scraper, reader, result, request)
            else:
                work = scrape(result, request)
            in_flight = in_flight_of(request)
            mark = NOTHING if in_flight is None else in_flight.mark(job.frontier.queues)
            if reader and charge:
                timed = _Timed(work, job.mark, mark, job.cpu)
                await timed
                charge(request, timed.spent)
            else:
                await Marked(work, job.mark, mark)

        return scrape_marked

    wrap_scrape(scraper, marked)
    if scraper.concurrent_items == 1:
        one_by_one = partial(_one_by_one, scraper)
        scraper.handle_spider_output_async = one_by_one  # type: ignore[method-assign]
    _mark_tasks(asyncio.get_running_loop(), job.mark)


async def _read(scraper: Scraper, reader: PageReader, response: Response, request: Request) -> None:
    try:
        await reader.read(response)
    except Exception:  # noqa: BLE001 - a spider's own, reported as Scrapy reports it
        scraper.handle_spider_error(Failure(), request, response)


async def _one_by_one(
    scraper: Scraper,
    output: Iterable[Any] | AsyncIterator[Any],
    request: Request,
    response: Response | Failure,
) -> None:
    """Process the output of a callback one item at a time, with the same result as Scrapy.

    Scrapy makes a queue and two tasks for each page; this makes none.
    """
    if not isinstance(output, AsyncIterator):
        output = as_async_generator(output)
    pause = monotonic() + _TURN
    while True:
        try:
            item = await anext(output)
        except StopAsyncIteration:
            return
        except Exception:  # noqa: BLE001 - a spider's own, reported as Scrapy reports it
            scraper.handle_spider_error(Failure(), request, response)
        else:
            await process_output(scraper, item, response)
        if monotonic() > pause:
            # Nothing above is sure to have yielded to the event loop.
            await asyncio.sleep(0)
            pause = monotonic() + _TURN


def _mark_tasks(loop: asyncio.AbstractEventLoop, mark: WorkMark) -> None:
    def plain_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        return asyncio.Task(coroutine, loop=loop, **options)

    make = loop.get_task_factory() or plain_task

    def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if mark.now != NOTHING:
            coroutine = Marked(coroutine, mark, mark.now)
        return make(loop, coroutine, **options)

    loop.set_task_factory(make_task)
