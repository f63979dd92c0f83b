"""Crash marks: each step of the work on a page runs under the page's mark.

If the process dies in a step, the next start knows the page. The work on a page is all that
Scrapy's scraper does with its answer: callback or errback, spider middlewares and item pipelines,
in one task and the tasks that it starts. A step is what runs from one ``await`` to the next.
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

from krowlspider.frontier.poison import POISON_STRIKES, is_poison
from krowlspider.frontier.store.schema import host_key
from krowlspider.frontier.work_mark import NOTHING, mark_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from scrapy import Request
    from scrapy.core.scraper import Scraper

    from krowlspider.crawl.in_flight import InFlight
    from krowlspider.crawl.job import Job
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts.holds import Hold
    from krowlspider.frontier.work_mark import WorkMark

_T = TypeVar("_T")
# Seconds for which a callback's output may hold one turn of the event loop.
_TURN = 0.01

logger = logging.getLogger(__name__)


class Marked(Generator[Any, Any, _T]):
    """A coroutine that runs each of its steps under a mark.

    ``spent`` sums the CPU seconds of the steps, without what others take from a busy machine.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, _T], mark: WorkMark, page: bytes):
        self._coroutine = coroutine
        self._mark = mark
        self._page = page
        self.spent = 0.0

    def __await__(self) -> Generator[Any, Any, _T]:
        return self

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._coroutine.throw, *error)

    def _step(self, resume: Callable[..., Any], *args: Any) -> Any:
        begun = thread_time()
        try:
            return self._mark.during(self._page, resume, *args)
        finally:
            self.spent += thread_time() - begun


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
    charge: Callable[[Request, float], None] = lambda _request, _seconds: None,
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
        if reader is not None and isinstance(result, Response) and reader.only_reads(request):
            steps = _read(scraper, reader, result, request)
        else:
            steps = scrape(result, request)
        work = Marked(steps, job.mark, page_mark(job.frontier, in_flight_of(request)))
        await work
        if reader is not None:
            charge(request, work.spent)

    scraper._scrape = scrape_marked  # type: ignore[method-assign]
    if scraper.concurrent_items == 1:
        scraper.handle_spider_output_async = partial(_one_by_one, scraper)  # type: ignore[method-assign]
    _mark_tasks(asyncio.get_running_loop(), job.mark)


async def _read(scraper: Scraper, reader: PageReader, response: Response, request: Request) -> None:
    try:
        await reader.read(response)
    except Exception:  # noqa: BLE001 - a spider's own, handled as Scrapy handles it
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
        except Exception:  # noqa: BLE001 - a spider's own, handled as Scrapy handles it
            scraper.handle_spider_error(Failure(), request, response)
        else:
            await scraper._process_spidermw_output_async(item, response)
        if monotonic() > pause:
            # Nothing above is sure to have yielded to the event loop.
            await asyncio.sleep(0)
            pause = monotonic() + _TURN


def _mark_tasks(loop: asyncio.AbstractEventLoop, mark: WorkMark) -> None:
    """Make each task that starts in a page's step run under the page's mark."""
    make = loop.get_task_factory()

    def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if mark.now != NOTHING:
            coroutine = Marked(coroutine, mark, mark.now)
        if make is None:
            return asyncio.Task(coroutine, loop=loop, **options)
        return make(loop, coroutine, **options)

    loop.set_task_factory(make_task)


def log_strike(entry: Entry, folder: Path) -> None:
    """Log the page that the last process was working on when it died."""
    if is_poison(entry):
        logger.warning(
            "%s is set aside: the process has died %d times while it worked on this page."
            ' `scrapy frontier %s --export` shows it as "state": "poison"; --import of that line'
            " queues it again.",
            entry.url,
            entry.strikes,
            quote(str(folder)),
        )
    else:
        logger.warning(
            "The last process died while it worked on %s: strike %d of %d",
            entry.url,
            entry.strikes,
            POISON_STRIKES,
        )


def log_holds(holds: Iterable[Hold], folder: Path) -> None:
    """Log each host that is set aside because it held the event loop."""
    for hold in holds:
        if hold.aside:
            logger.warning(
                "%s is set aside for a day: it has held the event loop for over 5 s %d times, the"
                " last with %s. Nothing of it is lost: `scrapy frontier %s --host %s` shows it;"
                " --export and --forget with --import queue it again.",
                hold.host,
                hold.times,
                hold.url or "its queue",
                quote(str(folder)),
                quote(hold.host),
            )
