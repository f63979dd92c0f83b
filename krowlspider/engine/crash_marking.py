"""Crash marks: each step of the work on a page runs under the page's mark.

If the process dies in a step, the next start reads the mark and knows the page. The work on a page
is all that Scrapy's scraper does with its answer: callback or errback, spider middlewares and item
pipelines, in one task and the tasks that it starts. A step is what runs from one ``await`` to the
next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Generator
from functools import partial
from shlex import quote
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from scrapy.http import Response
from scrapy.utils.asyncgen import as_async_generator
from twisted.python.failure import Failure

from krowlspider.frontier.poison import NOTHING, POISON_STRIKES, mark_of
from krowlspider.frontier.store.schema import host_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from scrapy import Request
    from scrapy.core.scraper import Scraper

    from krowlspider.crawl.in_flight import InFlight
    from krowlspider.crawl.job import Job
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts.holds import Hold
    from krowlspider.frontier.poison import Blame, WorkMark

_T = TypeVar("_T")
# Seconds for which a callback's output may hold one turn of the event loop.
_TURN = 0.01

logger = logging.getLogger(__name__)


class Marked(Generator[Any, Any, _T]):
    """A coroutine that runs each of its steps under a mark."""

    __slots__ = ("_coroutine", "_mark", "_of")

    def __init__(self, coroutine: Coroutine[Any, Any, _T], mark: WorkMark, of: bytes):
        self._coroutine = coroutine
        self._mark = mark
        self._of = of

    def __await__(self) -> Generator[Any, Any, _T]:
        return self

    def __next__(self) -> Any:
        return self._mark.during(self._of, self._coroutine.send, None)

    def send(self, value: Any) -> Any:
        return self._mark.during(self._of, self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._mark.during(self._of, self._coroutine.throw, *error)


class _Timed(Marked[_T]):
    """A `Marked` coroutine that sums the CPU seconds of its steps in ``spent``.

    CPU time leaves out what other processes take from a busy machine.
    """

    __slots__ = ("spent",)

    def __init__(self, coroutine: Coroutine[Any, Any, _T], mark: WorkMark, of: bytes):
        super().__init__(coroutine, mark, of)
        self.spent = 0.0

    def send(self, value: Any) -> Any:
        begun = thread_time()
        try:
            return super().send(value)
        finally:
            self.spent += thread_time() - begun

    def __next__(self) -> Any:
        return self.send(None)


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

    async def read(self, response: Response) -> Any:
        """Do the work of the callback."""


def page_mark(frontier: Frontier, in_flight: InFlight | None) -> bytes:
    """Return the mark for the work on a request's page, or on the robots.txt of a host.

    Return `NOTHING` for a request that is not in flight.
    """
    if in_flight is None:
        return NOTHING
    if not in_flight.mark:
        if in_flight.lease is not None:
            in_flight.mark = mark_of(frontier.queues.key_of(in_flight.lease), in_flight.url)
        elif in_flight.robots_fetch is not None:
            in_flight.mark = mark_of(host_key(in_flight.robots_fetch.host.name), in_flight.url)
        else:
            return NOTHING
    return in_flight.mark


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
    scrape = scraper._scrape

    async def scrape_marked(result: Response | Failure, request: Request) -> None:
        mark = page_mark(job.frontier, in_flight_of(request))
        if reader is None:
            await Marked(scrape(result, request), job.mark, mark)
            return
        if isinstance(result, Response) and reader.only_reads(request):
            work = _Timed(_read(scraper, reader, result, request), job.mark, mark)
        else:
            work = _Timed(scrape(result, request), job.mark, mark)
        await work
        if charge is not None:
            charge(request, work.spent)

    scraper._scrape = scrape_marked  # type: ignore[method-assign]
    if scraper.concurrent_items == 1:
        scraper.handle_spider_output_async = partial(_one_by_one, scraper)  # type: ignore[method-assign]
    _mark_tasks(asyncio.get_running_loop(), job.mark)


async def _read(scraper: Scraper, reader: PageReader, response: Response, request: Request) -> None:
    try:
        await reader.read(response)
    except Exception:  # noqa: BLE001 - a spider's own, told as Scrapy tells it
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
        except Exception:  # noqa: BLE001 - a spider's own, told as Scrapy tells it
            scraper.handle_spider_error(Failure(), request, response)
        else:
            await scraper._process_spidermw_output_async(item, response)
        if monotonic() > pause:
            # Nothing above is sure to have yielded to the event loop.
            await asyncio.sleep(0)
            pause = monotonic() + _TURN


def _mark_tasks(loop: asyncio.AbstractEventLoop, mark: WorkMark) -> None:
    make = loop.get_task_factory() or _plain_task

    def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if mark.now != NOTHING:
            coroutine = Marked(coroutine, mark, mark.now)
        return make(loop, coroutine, **options)

    loop.set_task_factory(make_task)


def _plain_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, _T], **options: Any
) -> asyncio.Task[_T]:
    return asyncio.Task(coroutine, loop=loop, **options)


def tell(blame: Blame, folder: Path) -> None:
    """Log what happened to the page that the last process was working on when it died."""
    entry = blame.entry
    if blame.damaged:
        logger.warning("The mark of the page at work is damaged in %s: no page is blamed", folder)
    elif entry is not None and blame.poisoned:
        logger.warning(
            "%s is set aside: the process has died %d times while it worked on this page."
            ' `scrapy frontier %s --export` shows it as "state": "poison", --import of that line queues it again.',
            entry.url,
            entry.strikes,
            quote(str(folder)),
        )
    elif entry is not None:
        logger.warning(
            "The last process died while it worked on %s: strike %d of %d",
            entry.url,
            entry.strikes,
            POISON_STRIKES,
        )


def tell_holds(holds: Iterable[Hold], folder: Path) -> None:
    """Log each host that is set aside because it held the event loop."""
    for hold in holds:
        if hold.aside:
            logger.warning(
                "%s is set aside for a day: it has held the event loop for over 5 s %d times, the last with %s. Nothing of"
                " it is lost: `scrapy frontier %s --host %s` shows it, --export and --forget with --import queue it again.",
                hold.host,
                hold.times,
                hold.url or "its queue",
                quote(str(folder)),
                quote(hold.host),
            )
