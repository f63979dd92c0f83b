"""Receive the hosts that other nodes hand over, in short steps of the event loop."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from krowlspider.cluster.transport.redis_connection import RedisConnection, RedisTrouble, checked
from krowlspider.frontier.moves.chunks import BadChunk, ChunkId, decode_chunk, decode_id
from krowlspider.frontier.schedule.ownership import HostBusyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redis.asyncio import Redis

    from krowlspider.frontier.moves.transfer import Arrivals

# Share of the loop's time while the crawl has work too.
SHARE = 0.25
# Seconds of work after which other tasks run. One step may take 10 ms.
_TURN_AFTER = 0.01
# Seconds whose share may be made up for: on a busy loop, a rest lasts longer than asked for.
_LATE_MAX = 0.1
# Most seconds of a turn of the loop in which no other task had work.
_IDLE_TURN = 0.0002


@dataclass(frozen=True)
class Time:
    """A clock and its sleep, in seconds; a test hands in faster ones."""

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


REAL_TIME = Time(time.monotonic, asyncio.sleep)


class LoopShare:
    """Limits the steps of several tasks together to ``share`` of the event loop's time, while other
    tasks have work.

    Wrap each step in ``async with``: some milliseconds in which nothing is awaited. ``share`` is
    called after each step and returns more than 0, at most 1.
    """

    def __init__(self, share: Callable[[], float], time: Time = REAL_TIME) -> None:
        self._share = share
        self._time = time
        self._lock = asyncio.Lock()
        self._begun = 0.0
        # Seconds of work since other tasks could run.
        self._spent = 0.0
        # The time at which the work done is no more than its share.
        self._even = -inf

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        self._begun = self._time.clock()

    async def __aexit__(self, *_: object) -> None:
        try:
            now = self._time.clock()
            took = now - self._begun
            self._spent += took
            self._even = max(self._even, now - took - _LATE_MAX) + took / self._share()
            if self._spent >= _TURN_AFTER:
                self._spent = 0.0
                await self._rest()
        finally:
            self._lock.release()

    async def _rest(self) -> None:
        """Let other tasks run until they have had their share, or have no work."""
        is_even = False
        while not is_even:
            before = self._time.clock()
            await self._time.sleep(0)
            now = self._time.clock()
            if now - before <= _IDLE_TURN:
                self._even = min(self._even, now)
            is_even = now >= self._even


# Seconds that an acknowledgement is kept for a sender that is away. After that, it sends again.
_KEPT = 3600
# The acknowledgement of a host that this node cannot take.
REFUSED = b"-"


def arrived_key(spider: str, host: str, transfer: str) -> str:
    """Return the key where the receiver writes how many chunks of a host have arrived.

    ``transfer`` is 16 hex digits, the same for hosts with the same record.
    """
    return f"{spider}:arrived:{host}:{transfer}"


@dataclass(slots=True)
class ReceiverStats:
    """Since this start: chunks taken, hosts of which the last one was taken, chunks not taken."""

    chunks: int = 0
    hosts: int = 0
    busy: int = 0
    refused: int = 0
    # Failed calls by kind.
    failed: Counter[str] = field(default_factory=Counter)


class HandoverReceiver:
    """Takes chunks into ``arrivals`` and acknowledges them in this node's own Redis, ``client``.

    ``may_take`` returns whether this node owns a host, and keeps other nodes from fetching it.
    Chunks of other hosts are sent again, until both nodes know the ring.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        client: Redis,
        spider: str,
        make_durable: Callable[[], Awaitable[object]],
        *,
        may_take: Callable[[str], bool] = lambda _: True,
        share: Callable[[], float] = lambda: SHARE,
        on_arrival: Callable[[], None] = lambda: None,
    ) -> None:
        self._arrivals = arrivals
        self._connection = RedisConnection(client)
        self._spider = spider
        self._make_durable = make_durable
        self._may_take = may_take
        self._share = LoopShare(share)
        self._on_arrival = on_arrival
        self.stats = ReceiverStats()

    async def take(self, chunks: list[bytes]) -> list[str | None]:
        """Take chunks, as JSON; return for each the reason why no node can take it, or None."""
        taken = self.stats.chunks
        acknowledgements: dict[str, bytes | int] = {}
        reasons: list[str | None] = []
        for chunk in chunks:
            async with self._share:
                reasons.append(self._take(chunk, acknowledgements))
        if acknowledgements:
            await self._make_durable()
            await self._acknowledge(acknowledgements)
        if self.stats.chunks > taken:
            self._on_arrival()
        return reasons

    def _take(self, data: bytes, acknowledgements: dict[str, bytes | int]) -> str | None:
        try:
            chunk = decode_chunk(data)
            if not self._may_take(chunk.host):
                self.stats.busy += 1
                return None
            arrived = self._arrivals.take(chunk)
        except BadChunk as error:
            refused = decode_id(data)
            if refused is not None and not self._may_take(refused.host):
                # Its owner says whether it can be taken: it may run another version.
                self.stats.busy += 1
                return None
            self.stats.refused += 1
            if refused is not None:
                acknowledgements[self._key(refused)] = REFUSED
            return str(error)[:200]
        except HostBusyError:
            # The sender sends it again.
            self.stats.busy += 1
            return None
        acknowledgements[self._key(chunk)] = arrived
        if arrived == chunk.number + 1:
            self.stats.chunks += 1
            self.stats.hosts += chunk.last
        return None

    def _key(self, chunk: ChunkId) -> str:
        return arrived_key(self._spider, chunk.host, chunk.transfer)

    async def _acknowledge(self, acknowledgements: dict[str, bytes | int]) -> None:
        """Write the acknowledgements. If that fails, the chunks come again, and then these."""
        commands = [("SET", key, value, "EX", _KEPT) for key, value in acknowledgements.items()]
        try:
            checked(await self._connection.call_all(*commands))
        except RedisTrouble as error:
            self.stats.failed[error.kind] += 1

    async def close(self) -> None:
        await self._connection.close()
