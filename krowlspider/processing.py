"""The work on pages, step by step under their mark: what runs when the process dies is known to the next one.

A page's work is what Scrapy's scraper does with its answer: callback or errback, spider middlewares and item
pipelines, in one task and those it starts. Each step of these tasks, from one ``await`` to the next, is marked.
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
from krowlspider.frontier.schema import host_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from scrapy import Request
    from scrapy.core.scraper import Scraper

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.holds import Hold
    from krowlspider.frontier.poison import Blame, WorkMark
    from krowlspider.job import Job
    from krowlspider.scheduler import Transit

_T = TypeVar("_T")
# Seconds of one turn of the event loop for what a callback yields.
_TURN = 0.01

logger = logging.getLogger(__name__)


class Marked(Generator[Any, Any, _T]):
    """A coroutine whose every step is done under a mark."""

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
    """As `Marked`; ``spent`` are the seconds of CPU that its steps have taken: those of a busy machine
    are not the page's."""

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
    """A spider that yields nothing for some requests: their answers need none of Scrapy's spider middlewares, whose
    generators within generators, and two turns of the loop, take 50 µs of each."""

    def only_reads(self, request: Request) -> bool:
        """Whether `read` is all that its callback does, and nobody is to see what it yields."""

    async def read(self, response: Response) -> Any:
        """What the callback does."""


def page_mark(frontier: Frontier, transit: Transit | None) -> bytes:
    """What marks the work on a request's page, or on the robots.txt of a host."""
    if transit is None:
        return NOTHING
    if not transit.mark:
        if transit.lease is not None:
            transit.mark = mark_of(frontier.key_of(transit.lease), transit.url)
        elif transit.errand is not None:
            transit.mark = mark_of(host_key(transit.errand.host.name), transit.url)
        else:
            return NOTHING
    return transit.mark


def mark_work(
    scraper: Scraper,
    job: Job,
    transit_of: Callable[[Request], Transit | None],
    reader: PageReader | None = None,
    charge: Callable[[Request, float], None] | None = None,
) -> None:
    """Have a scraper do each step of its work on a page under the page's mark, and have ``reader``,
    the spider if it is one, read its pages. ``charge`` is told how many seconds of the loop each of
    the reader's pages took.

    Scrapy has no hook round a callback's steps: it iterates the output in one task, feeds the pipelines in others
    and runs an ``async def`` callback in one more. So the first is wrapped, and a task that is started in the
    middle of a page's step is taken to be the page's too.
    """
    scrape = scraper._scrape

    async def scrape_marked(result: Response | Failure, request: Request) -> None:
        mark = page_mark(job.frontier, transit_of(request))
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
    """What Scrapy does with a callback's output, one item at a time: without the queue and the two tasks that it makes
    for each page however many there are."""
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
            # Nothing above need have given the loop its turn.
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
    """Log what became of the page that the last process died over."""
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
    """Log which hosts are set aside because they held the event loop."""
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
