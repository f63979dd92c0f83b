"""The URLFrontier service of crawler-commons, over the crawls of a folder.

All that changes a crawl runs in one thread, in the order of arrival: so a queue is never given to
two clients. What reads all of a crawl runs in another one.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import grpc
import plyvel

from krowlspider.errors import KrowlError
from krowlspider.frontier.schedule.orders import OrderError
from krowlspider.frontier.store.store import STORE_ERRORS
from krowlspider.rpc.generated import urlfrontier_pb2 as messages
from krowlspider.rpc.generated.urlfrontier_pb2_grpc import URLFrontierServicer
from krowlspider.rpc.sending import send
from krowlspider.rpc.urlfrontier.crawls import DEFAULT
from krowlspider.rpc.urlfrontier.records import Item, Phase
from krowlspider.rpc.urlfrontier.streams import Budget, StreamError, acks, batch_acks
from krowlspider.urls.canonical import host_of, normalise
from krowlspider.urls.seeds import ordered_host

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator

    from krowlspider.rpc.urlfrontier.crawl import ServedCrawl
    from krowlspider.rpc.urlfrontier.crawls import Crawls

_T = TypeVar("_T")
# A removal: each step takes some milliseconds; it returns how many URLs were removed.
_Steps: TypeAlias = "Generator[None, None, int]"
_log = logging.getLogger(__name__)

# Seconds of a lease for which the client asks none.
LEASE = 30
# Seconds between two looks at the leases and pages whose time has come.
_TICK = 1.0
# Results of a list that names no number, and URLs read in one turn of the thread.
_LISTED = 100
_STEP = 500
# Queues in one list.
_QUEUES_MAX = 100_000
_LEVELS = (5, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


class FrontierService(URLFrontierServicer):
    """Serves ``crawls``, which belong to it until `stop`. ``counts`` is as in `send`.

    ``failure``: the disk has failed so, and nothing more can be taken.
    """

    def __init__(self, crawls: Crawls, counts: Counter[str]):
        self._crawls = crawls
        self._counts = counts
        self._address = ""
        self._worker = ThreadPoolExecutor(1, "urlfrontier")
        self._reader = ThreadPoolExecutor(1, "urlfrontier-read")
        self._budget = Budget()
        self._ticks: asyncio.Task[None] | None = None
        self._removal = asyncio.Lock()
        self._removing: asyncio.Task[int] | None = None
        self.failure: Exception | None = None

    def start(self, address: str) -> asyncio.Task[None]:
        """Begin to look at what is due by the time alone. The task that is returned ends only if
        that fails. ``address`` is where the server listens."""
        self._address = address
        self._ticks = asyncio.create_task(self._keep_ticking())
        return self._ticks

    def end_streams(self) -> None:
        """End the streams of reports, before the server stops."""
        self._budget.end_streams()

    async def stop(self) -> None:
        """Close all crawls, once the calls have ended."""
        for task in (self._ticks, self._removing):
            if task is not None:
                task.cancel()
        self._reader.shutdown(cancel_futures=True)
        if self.failure is None:
            await self._run(self._crawls.close)
        self._worker.shutdown()

    async def _keep_ticking(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            await self._run(self._crawls.tick)

    async def _run(self, work: Callable[..., _T], *args: Any) -> _T:
        """Do work in the thread of the crawls.

        :raises StoreError: the disk failed
        """
        if self.failure is not None:
            raise self.failure
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, work, *args)
        except STORE_ERRORS as error:
            if self.failure is None:
                self.failure = error
                _log.error("Closing: the frontier cannot be written: %s", error)
            raise

    async def _do(self, context: Any, work: Callable[..., _T], *args: Any) -> _T:
        """Do work, and end the call with a status if that cannot be done."""
        try:
            return await self._run(work, *args)
        except OrderError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except (KrowlError, *STORE_ERRORS) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        raise AssertionError

    async def _queue(self, key: str, context: Any) -> str:
        """Return the queue of a key, "" for none; end the call if it is no host."""
        if not key:
            return ""
        try:
            return ordered_host(key)
        except ValueError:
            # What is no host for people may be one of a URL: http://a..example/
            url = normalise(f"http://{key}/")
            if url is not None and host_of(url) == key:
                return key
        why = f"key {key[:80]!r} is not a host: give a key as GetURLs and ListQueues return it"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        raise AssertionError

    async def _crawl(self, crawl_id: str, context: Any) -> ServedCrawl | None:
        return await self._do(context, self._crawls.get, crawl_id)

    # --- URLs in and out ---

    async def GetURLs(self, request: Any, context: Any) -> None:
        key = await self._queue(request.key, context)
        crawl_id = request.crawlID if request.WhichOneof("item") == "crawlID" else None
        if key and crawl_id is None:
            # As in the reference: a key alone names no queue.
            return
        seconds = request.delay_requestable or LEASE
        asked = (request.max_queues, request.max_urls_per_queue, seconds, key)
        for leased in await self._do(context, self._crawls.take, crawl_id, *asked):
            way_out = "the leases of the others end at their time"
            await send(_info(*leased), context, self._counts, way_out)

    async def PutURLs(self, requests: AsyncIterator[Any], context: Any) -> None:
        await self._acknowledge(acks, requests, context)

    async def PutDiscovered(self, requests: AsyncIterator[Any], context: Any) -> None:
        await self._acknowledge(batch_acks, requests, context)

    async def _acknowledge(
        self, answers: Callable[..., Any], requests: AsyncIterator[Any], context: Any
    ) -> None:
        put = partial(self._run, self._crawls.put)
        try:
            async with aclosing(answers(requests, put, self._budget)) as found:
                async for ack in found:
                    way_out = "send again what has no acknowledgement"
                    await send(ack, context, self._counts, way_out)
        except StreamError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    # --- lists ---

    async def ListNodes(self, request: Any, context: Any) -> Any:
        return messages.StringList(values=[self._address])

    async def ListCrawls(self, request: Any, context: Any) -> Any:
        return messages.StringList(values=await self._do(context, self._crawls.ids))

    async def ListQueues(self, request: Any, context: Any) -> Any:
        crawl = await self._crawl(request.crawlID, context)
        start, size = request.start, min(request.size or _LISTED, _QUEUES_MAX)
        found: list[str] = []
        if crawl is not None:
            names = crawl.queue_names(include_inactive=request.include_inactive)
            async with aclosing(self._read(names, start, size, context)) as parts:
                async for some in parts:
                    found += some
        return messages.QueueList(
            values=found, start=start, size=len(found), crawlID=request.crawlID or DEFAULT
        )

    async def ListURLs(self, request: Any, context: Any) -> None:
        items, size = await self._items(request, context), request.size or _LISTED
        async with aclosing(self._read(items, request.start, size, context)) as parts:
            async for some in parts:
                for host, item in some:
                    listed = _known(request.crawlID or DEFAULT, host, item)
                    await send(listed, context, self._counts, "ask again, with start")

    async def CountURLs(self, request: Any, context: Any) -> Any:
        count = 0
        items = await self._items(request, context)
        async with aclosing(self._read(items, 0, sys.maxsize, context)) as parts:
            async for some in parts:
                count += len(some)
        return messages.Long(value=count)

    async def _items(self, request: Any, context: Any) -> Iterator[tuple[str, Item] | None]:
        """Return the URLs of a crawl or a queue; None for each that the request does not select."""
        key = await self._queue(request.key, context)
        crawl = await self._crawl(request.crawlID, context)
        if crawl is None:
            return iter(())
        found = crawl.items(key)
        text = request.filter
        if not text.strip():
            return found
        if request.ignoreCase:
            text = text.lower()
            return (each if text in each[1].url.lower() else None for each in found)
        return (each if text in each[1].url else None for each in found)

    async def _read(
        self, found: Iterator[_T | None], start: int, size: int, context: Any
    ) -> AsyncGenerator[list[_T], None]:
        """Yield so many results from ``start`` on, some at a time; None is no result. Between two
        looks at some, other calls have their turn."""
        loop = asyncio.get_running_loop()
        while size > 0:
            try:
                some = await loop.run_in_executor(self._reader, lambda: list(islice(found, _STEP)))
            except (RuntimeError, *STORE_ERRORS, plyvel.Error) as error:
                why = f"the crawl was deleted meanwhile, or cannot be read: {error}"
                await context.abort(grpc.StatusCode.ABORTED, why)
            if not some:
                return
            results = [each for each in some if each is not None]
            wanted = results[start : start + size]
            start, size = max(0, start - len(results)), size - len(wanted)
            yield wanted

    async def GetURLStatus(self, request: Any, context: Any) -> Any:
        crawl = await self._crawl(request.crawlID, context)
        found = None if crawl is None else await self._do(context, crawl.find, request.url)
        if found is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"not known: {request.url[:200]}")
            raise AssertionError
        host, item = found
        return _known(request.crawlID or DEFAULT, host, item)

    async def GetStats(self, request: Any, context: Any) -> Any:
        key = await self._queue(request.key, context)
        crawl = await self._crawl(request.crawlID, context)
        stats = messages.Stats(crawlID=request.crawlID or DEFAULT)
        figures = None if crawl is None else await self._do(context, crawl.figures, key)
        stats.counts["completed"] = figures.done if figures else 0
        stats.counts["active_queues"] = figures.active_queues if figures else 0
        if figures is not None:
            stats.size, stats.inProcess = figures.active, figures.leased
            stats.numberOfQueues = figures.queues
        return stats

    # --- orders ---

    async def GetActive(self, request: Any, context: Any) -> Any:
        active = await self._do(context, lambda: self._crawls.is_active)
        return messages.Boolean(state=active)

    async def SetActive(self, request: Any, context: Any) -> Any:
        await self._do(context, partial(self._crawls.set_active, active=request.state))
        return messages.Empty()

    async def SetDelay(self, request: Any, context: Any) -> Any:
        key = await self._queue(request.key, context)
        seconds = float(request.delay_requestable)
        await self._do(context, self._crawls.set_delay, request.crawlID, seconds, key)
        return messages.Empty()

    async def BlockQueueUntil(self, request: Any, context: Any) -> Any:
        key = await self._queue(request.key, context)
        if key:
            await self._do(context, self._crawls.block, request.crawlID, key, float(request.time))
        return messages.Empty()

    async def SetCrawlLimit(self, request: Any, context: Any) -> Any:
        key = await self._queue(request.key, context)
        crawl = await self._crawl(request.crawlID, context)
        if crawl is None or not await self._do(context, crawl.limit, key, request.limit):
            why = f"there is no queue {request.key[:200]!r} in this crawl"
            await context.abort(grpc.StatusCode.NOT_FOUND, why)
        return messages.Empty()

    async def SetLogLevel(self, request: Any, context: Any) -> Any:
        name = request.package
        # Others would be new loggers, which stay until the process ends.
        is_known = name in logging.Logger.manager.loggerDict
        if not is_known or name.partition(".")[0] != "krowlspider":
            why = f"package {name[:200]!r}: give krowlspider, or a module of it that logs"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        if request.level not in range(len(_LEVELS)):
            names = ", ".join(messages.LogLevelParams.Level.keys())
            why = f"level {request.level}: give one of {names}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        logging.getLogger(name).setLevel(_LEVELS[request.level])
        return messages.Empty()

    # --- removing ---

    async def DeleteQueue(self, request: Any, context: Any) -> Any:
        key = await self._queue(request.key, context)

        def steps(crawl: ServedCrawl) -> _Steps:
            return crawl.delete_queue(key)

        return await self._remove(self._in(request.crawlID, steps), context)

    async def DeleteCrawl(self, request: Any, context: Any) -> Any:
        return await self._remove(self._crawls.delete(request.value), context)

    async def PurgeURLs(self, request: Any, context: Any) -> Any:
        key = await self._queue(request.key, context)

        def steps(crawl: ServedCrawl) -> _Steps:
            return crawl.purge(request.days, key)

        return await self._remove(self._in(request.crawlID, steps), context)

    def _in(self, crawl_id: str, steps: Callable[[ServedCrawl], _Steps]) -> _Steps:
        """Do the steps of a removal in a crawl; return 0 if there is none of this id."""
        crawl = self._crawls.get(crawl_id)
        return 0 if crawl is None else (yield from steps(crawl))

    async def _remove(self, steps: _Steps, context: Any) -> Any:
        """Remove URLs in steps, between which other calls have their turn; return how many. One
        removal goes on at a time, and goes on if its call ends."""
        await self._removal.acquire()
        self._removing = asyncio.create_task(self._removed(steps))
        self._removing.add_done_callback(self._end_removal)
        try:
            return messages.Long(value=await asyncio.shield(self._removing))
        except (KrowlError, *STORE_ERRORS) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    async def _removed(self, steps: _Steps) -> int:
        while (count := await self._run(_step, steps)) is None:
            pass
        return count

    def _end_removal(self, done: asyncio.Task[int]) -> None:
        # Its call may have ended before.
        if not done.cancelled():
            done.exception()
        self._removal.release()


def _step(doing: _Steps) -> int | None:
    """Do the next step of a removal; return how many URLs it has removed after the last one."""
    try:
        next(doing)
    except StopIteration as end:
        count: int = end.value
        return count
    return None


def _info(crawl_id: str, host: str, item: Item) -> Any:
    info = messages.URLInfo(url=item.url, key=host, crawlID=crawl_id)
    for name, values in item.metadata.items():
        info.metadata[name].values.extend(values)
    return info


def _known(crawl_id: str, host: str, item: Item) -> Any:
    """Return a URL as PutURLs takes it: one that is not done has a time, at which it is due."""
    later = 0 if item.phase is Phase.DONE else max(1, int(item.due))
    known = messages.KnownURLItem(info=_info(crawl_id, host, item), refetchable_from_date=later)
    return messages.URLItem(known=known, creation_date=int(item.created))
