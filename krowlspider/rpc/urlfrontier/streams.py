"""The streams of reports: read as fast as they are taken, and acknowledged once they are durable.

What clients have sent and has no acknowledgement yet is bounded, for each stream and for all
together. Beyond that a stream is not read, so its client has to wait.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from krowlspider.errors import KrowlError
from krowlspider.frontier.store.store import STORE_ERRORS
from krowlspider.rpc.generated import urlfrontier_pb2 as messages
from krowlspider.rpc.urlfrontier.intake import AckStatus, Report

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
    from typing import TypeAlias

    from krowlspider.rpc.urlfrontier.crawls import CrawlsError

    Put: TypeAlias = Callable[
        [Sequence[tuple[str, Report]]], Awaitable[list[AckStatus | CrawlsError]]
    ]

# Bytes that wait in all streams together, and messages in one.
BYTES_MAX = 32 * 1024 * 1024
MESSAGES_MAX = 1024
# URLs that are taken and synced together.
GROUP = 2000
# Bytes of a URL with its metadata: a larger one is not kept until its turn.
URL_BYTES_MAX = 65_536
ID_BYTES_MAX = 65_536
_log = logging.getLogger(__name__)
_END = None
# One URL with the id of its crawl; None for one that is skipped.
Given = tuple[str, Report] | None


class StreamError(KrowlError):
    """A message of a stream is none of its type."""


class Budget:
    """Bytes that may wait in all streams together, and the ``streams`` that are open."""

    def __init__(self, most: int = BYTES_MAX):
        self._most = most
        self._used = 0
        self._room = asyncio.Condition()
        self.streams: set[_Inbound] = set()

    def end_streams(self) -> None:
        """Read no more: each stream ends once what was read is acknowledged."""
        for stream in self.streams:
            stream.end()

    async def take(self, size: int) -> None:
        """Wait until there is room. A message larger than all of it waits until it is alone."""
        async with self._room:
            await self._room.wait_for(lambda: not self._used or self._used + size <= self._most)
            self._used += size

    async def give(self, size: int) -> None:
        async with self._room:
            self._used -= size
            self._room.notify_all()


class _Inbound:
    """The messages of a stream that wait: ``parse`` returns the id and the URLs of one."""

    def __init__(
        self,
        requests: AsyncIterator[Any],
        parse: Callable[[Any], tuple[str, list[Given]]],
        budget: Budget,
    ):
        self._requests = requests
        self._parse = parse
        self._budget = budget
        self._queue: asyncio.Queue[tuple[int, str, list[Given]] | None] = asyncio.Queue(
            MESSAGES_MAX
        )
        self._held = 0
        self._reading = asyncio.create_task(self._read())
        budget.streams.add(self)

    async def _read(self) -> None:
        try:
            async for message in self._requests:
                size = message.ByteSize()
                await self._budget.take(size)
                self._held += size
                await self._queue.put((size, *self._parse(message)))
        finally:
            # A client that is gone ends its stream too. The queue may be full: its reader goes on.
            await self._queue.put(_END)

    async def groups(self) -> AsyncIterator[list[tuple[str, list[Given]]]]:
        """Yield what waits, some messages at a time. Those of a group are given up by the next."""
        is_over = False
        while not is_over:
            group: list[tuple[str, list[Given]]] = []
            count = size = 0
            waiting = await self._queue.get()
            while True:
                if waiting is _END:
                    is_over = True
                    break
                each, name, urls = waiting
                group.append((name, urls))
                count, size = count + len(urls), size + each
                if count >= GROUP or self._queue.empty():
                    break
                waiting = self._queue.get_nowait()
            if group:
                yield group
                self._held -= size
                await self._budget.give(size)

    async def check(self) -> None:
        """Call it once `groups` has ended.

        :raises StreamError: it ended at a message that cannot be read
        """
        await asyncio.wait([self._reading])
        if not self._reading.cancelled() and (fault := self._reading.exception()) is not None:
            raise StreamError(f"a message cannot be read: {fault}") from fault

    def end(self) -> None:
        self._reading.cancel()

    async def close(self) -> None:
        self._budget.streams.discard(self)
        self._reading.cancel()
        # Nobody reads any more: without room for the end, the reading would wait for ever.
        while not self._queue.empty():
            self._queue.get_nowait()
        await asyncio.wait([self._reading])
        if not self._reading.cancelled():
            # The client is gone, or the server stops.
            self._reading.exception()
        await self._budget.give(self._held)


async def _answers(
    requests: AsyncIterator[Any],
    parse: Callable[[Any], tuple[str, list[Given]]],
    put: Put,
    budget: Budget,
    answer: Callable[[str, list[AckStatus]], Any],
) -> AsyncGenerator[Any, None]:
    """Yield the answers to the messages of a stream, in their order.

    :raises StreamError: a message could not be read; those before it are answered
    """
    inbound = _Inbound(requests, parse, budget)
    try:
        async for group in inbound.groups():
            given = [each for _, urls in group for each in urls if each is not None]
            taken = iter(await _taken(given, put))
            for name, urls in group:
                yield answer(
                    name, [AckStatus.SKIPPED if each is None else next(taken) for each in urls]
                )
        await inbound.check()
    finally:
        await inbound.close()


async def _taken(given: list[tuple[str, Report]], put: Put) -> list[AckStatus]:
    """Have reports taken, and return what becomes of them. Where that fails, they may be sent
    again."""
    try:
        found = await put(given)
    except (KrowlError, *STORE_ERRORS):
        return [AckStatus.FAIL] * len(given)
    for fault in {str(each) for each in found if not isinstance(each, AckStatus)}:
        _log.warning("URLs of a client were answered with FAIL: %s", fault)
    return [each if isinstance(each, AckStatus) else AckStatus.FAIL for each in found]


def acks(requests: AsyncIterator[Any], put: Put, budget: Budget) -> AsyncGenerator[Any, None]:
    """Yield an AckMessage for each URLItem, in their order."""

    def answer(name: str, found: list[AckStatus]) -> Any:
        return messages.AckMessage(ID=name, status=found[0].name)

    return _answers(requests, _item, put, budget, answer)


def batch_acks(requests: AsyncIterator[Any], put: Put, budget: Budget) -> AsyncGenerator[Any, None]:
    """Yield a BatchAck for each DiscoveredBatch, in their order."""

    def answer(name: str, found: list[AckStatus]) -> Any:
        return messages.BatchAck(ID=name, statuses=[each.name for each in found])

    return _answers(requests, _batch, put, budget, answer)


def _item(message: Any) -> tuple[str, list[Given]]:
    kind = message.WhichOneof("item")
    name = message.ID[:ID_BYTES_MAX]
    if kind is None:
        return name, [None]
    one = getattr(message, kind)
    refetch = float(one.refetchable_from_date) if kind == "known" else None
    return name or one.info.url[:ID_BYTES_MAX], [_given(one.info, refetch)]


def _batch(message: Any) -> tuple[str, list[Given]]:
    return message.ID[:ID_BYTES_MAX], [_given(info, None) for info in message.items]


def _given(info: Any, refetch: float | None) -> Given:
    """Return one URL; None if it is too large to be kept until its turn."""
    if info.ByteSize() > URL_BYTES_MAX:
        return None
    metadata = {name: list(each.values) for name, each in info.metadata.items()}
    return info.crawlID, Report(info.url, metadata, refetch)
