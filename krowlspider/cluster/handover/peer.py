"""The hosts that go to one node: which are under way, what is to be sent of them, and what it has of them.

A chunk goes to a list in the owner's Redis. How many of a host have come, and are on the owner's disk to stay, is read in
that Redis too: a chunk that is not among them is sent again, and one that comes twice changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from krowlspider.cluster.handover.receiver import REFUSED, arrived_key
from krowlspider.cluster.transport.inbox import MAX_CHUNK, hosts_key, processing_key
from krowlspider.cluster.transport.redis_connection import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from krowlspider.cluster.handover.loop_share import LoopShare
    from krowlspider.cluster.transport.redis_connection import RedisConnection

logger = logging.getLogger(__name__)

# Hosts under way to one node, and chunks of one host that are not acknowledged: what keeps a node at work from one
# acknowledgement to the next.
WINDOW = 512
_AHEAD = 8
# Hosts asked for at a time, the oldest first, and more as long as some have arrived.
_ASKED = 64
# Bytes that are under way to one node, and in one push.
_WINDOW_BYTES = 8 << 20
_PUSH_BYTES = 1 << 20
# Chunks in a node's list, from all nodes, beyond which nothing is sent.
_LIST_MAX = 1000
# Seconds between two tries of hosts with a request in flight.
_BUSY = 0.5
# Seconds after which a chunk that is not acknowledged is sent again: when nothing is left in the node's lists, it was
# lost there or could not be taken; else it may be behind those of others.
_LOST = 0.5
_LATE = 10.0
# Seconds without an acknowledgement after which nobody waits for a node.
_STUCK = 5.0
# Seconds for a push of one chunk by itself, on a way on which more had no answer in time.
_LONG = 30.0


class Departure(Protocol):
    """One host on its way out."""

    transfer: bytes

    def skip(self, arrived: int) -> Iterator[None]:
        """Come to the chunk after so many, some at each step."""

    def chunk(self, arrived: int) -> dict[str, Any] | None:
        """The chunk to send when so many have arrived; None when those were all.

        :raises LookupError: there are not so many
        """

    def begin_again(self) -> None:
        """Nothing has arrived, of another transfer."""

    def end(self) -> Iterator[None]:
        """Remove it, some at each step."""

    def abort(self) -> None:
        """It stays."""


class Departures(Protocol):
    """The hosts that leave a frontier; ``kept`` are entries that stay, of hosts that are not to be looked at again."""

    kept: dict[str, int]

    def moving(self, owner_of: Callable[[str], str | None]) -> Iterator[list[tuple[str, str]]]:
        """Hosts that belong to others, with their owners, some at each step."""

    def begin(self, name: str) -> Departure:
        """Seal a host."""


@dataclass(slots=True)
class HandoverStats:
    """Of this start: hosts that their owners have; chunks sent, with the entries and bytes in them; those that were to be
    sent once more; hosts that their owner refused; troubles by kind."""

    hosts: int = 0
    chunks: int = 0
    entries: int = 0
    bytes: int = 0
    again: int = 0
    refused: int = 0
    failed: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class _Host:
    """A host under way: ``arrived`` of its chunks are acknowledged, the next ones, of so many bytes, are sent; ``is_whole``
    when they are all, ``is_delivered`` when they have all arrived. ``since`` is when one was sent or acknowledged last."""

    name: str
    departure: Departure
    key: str
    since: float
    arrived: int = 0
    sizes: list[int] = field(default_factory=list)
    is_whole: bool = False
    is_delivered: bool = False

    @property
    def is_next(self) -> bool:
        """Whether there is something to do before more is acknowledged."""
        return not self.sizes or (not self.is_whole and len(self.sizes) < _AHEAD)

    def set_arrived(self, count: int) -> None:
        if count < self.arrived:
            # The other node lost what it had.
            self.send_again()
        else:
            del self.sizes[: count - self.arrived]
        self.arrived = count

    def send_again(self) -> None:
        self.sizes.clear()
        self.is_whole = False


class PeerHandover:
    """Hosts for the node ``owner``: names that are ``waiting`` for their turn, some ``busy`` for now, and those that are
    ``open``. ``error`` is what `Departures.begin` raises for one that is busy; ``share`` keeps the steps short.
    """

    def __init__(
        self,
        owner: str,
        departures: Departures,
        spider: str,
        *,
        error: type[Exception],
        share: LoopShare,
        stats: HandoverStats,
        clock: Callable[[], float],
    ) -> None:
        self.owner = owner
        self.waiting: deque[str] = deque()
        self.busy: list[str] = []
        self.open: dict[str, _Host] = {}
        self._departures = departures
        self._spider = spider
        self._key = hosts_key(spider)
        self._processing = processing_key(self._key, owner)
        self._error = error
        self._share = share
        self._stats = stats
        self._clock = clock
        # Keys of acknowledgements that nobody reads any more.
        self._read: list[str] = []
        # Of the owner's list, as it last told.
        self._length = 0
        self._push_bytes = _PUSH_BYTES
        self._try_busy_at = -inf
        self._is_refused = False
        # When something was acknowledged last, or there was nothing to be.
        self._heard_at = clock()

    @property
    def is_active(self) -> bool:
        return bool(self.waiting or self.busy or self.open or self._read)

    @property
    def is_stuck(self) -> bool:
        return self._clock() - self._heard_at > _STUCK

    async def turn(self, connection: RedisConnection) -> None:
        """Hear what has arrived, and send all that there is room for.

        :raises RedisTrouble: the owner's Redis cannot be talked to; nothing is lost
        """
        await self._listen(connection)
        if self.busy and self._clock() >= self._try_busy_at:
            self._try_busy_at = self._clock() + _BUSY
            self.waiting.extendleft(reversed(self.busy))
            self.busy.clear()
        while self._length < _LIST_MAX and (chunks := await self._cut()):
            await self._push(connection, chunks)

    def slow_down(self) -> None:
        """A push had no answer in time: less at a time gets through."""
        self._push_bytes = max(self._push_bytes // 2, 1)

    # --- out ---

    async def _cut(self) -> list[bytes]:
        """The next chunks of hosts under way, then of others, for one push."""
        chunks: list[bytes] = []
        under_way = sum(sum(host.sizes) for host in self.open.values())
        room = min(self._push_bytes, _WINDOW_BYTES - under_way)
        hosts = deque(host for host in self.open.values() if host.is_next)
        while room > 0 and (hosts or (self.waiting and len(self.open) < WINDOW)):
            async with self._share:
                host = hosts.popleft() if hosts else self._begin()
            if host is None:
                continue
            await self._skip(host)
            async with self._share:
                data = self._next(host)
            if data is not None:
                chunks.append(data)
                room -= len(data)
            elif host.is_delivered:
                await self._end(host)
        return chunks

    async def _skip(self, host: _Host) -> None:
        """Have the next chunk of a host cut, after those before it."""
        steps = host.departure.skip(host.arrived + len(host.sizes))
        is_over = False
        while not is_over:
            async with self._share:
                is_over = next(steps, True) is True

    def _begin(self) -> _Host | None:
        name = self.waiting.popleft()
        try:
            departure = self._departures.begin(name)
        except self._error:
            self.busy.append(name)
            return None
        key = arrived_key(self._spider, name, departure.transfer.hex())
        host = self.open[name] = _Host(name, departure, key, self._clock())
        return host

    def _next(self, host: _Host) -> bytes | None:
        """The next chunk of a host; None when its owner has all, or cannot take it, or has less than it seemed."""
        try:
            chunk = host.departure.chunk(host.arrived + len(host.sizes))
        except LookupError:
            self._disbelieve(host)
            return None
        if chunk is None:
            host.is_delivered = True
            return None
        data = msgspec.json.encode(chunk)
        if len(data) > MAX_CHUNK:
            self._keep(host)
            return None
        host.sizes.append(len(data))
        host.is_whole = chunk["last"]
        host.since = self._clock()
        self._stats.chunks += 1
        self._stats.entries += len(chunk.get("entries", ()))
        self._stats.bytes += len(data)
        return data

    async def _push(self, connection: RedisConnection, chunks: list[bytes]) -> None:
        # The first value is pushed first, so it is the first that the owner pops. The reply is the list's length.
        packed = connection.pack("LPUSH", self._key, *chunks)
        is_slow = len(chunks) == 1 and self._push_bytes < _PUSH_BYTES
        (self._length,) = checked(await connection.send([packed], 1, _LONG if is_slow else None))
        self._push_bytes = min(2 * self._push_bytes, _PUSH_BYTES)

    async def _end(self, host: _Host) -> None:
        """Remove a host. Once begun, this goes on to its end before it is cancelled: a host that is half removed would be
        removed in one step, by `Departures.stop`."""
        steps = host.departure.end()
        cancelled: asyncio.CancelledError | None = None
        is_over = False
        while not is_over:
            try:
                async with self._share:
                    is_over = next(steps, True) is True
            except asyncio.CancelledError as error:
                cancelled = error
        self._leave(host)
        self._stats.hosts += 1
        if cancelled is not None:
            raise cancelled

    def _disbelieve(self, host: _Host) -> None:
        logger.warning(
            "Node %s has less of %s than its Redis says: it is sent again", self.owner, host.name
        )
        self._read.append(host.key)
        host.departure.begin_again()
        host.key = arrived_key(self._spider, host.name, host.departure.transfer.hex())
        host.arrived = 0
        host.send_again()

    def _keep(self, host: _Host) -> None:
        """A host that its owner cannot take stays until the ring is another."""
        host.departure.abort()
        self._departures.kept[host.name] = 1
        self._leave(host)
        self._stats.refused += 1
        if not self._is_refused:
            logger.warning(
                "Node %s cannot take %s, which stays here, and maybe others: an entry is too long, or see its dead list",
                self.owner,
                host.name,
            )
        self._is_refused = True

    def _leave(self, host: _Host) -> None:
        del self.open[host.name]
        self._read.append(host.key)

    # --- what has arrived ---

    async def _listen(self, connection: RedisConnection) -> None:
        # The lists first: a chunk that is in neither has been acknowledged by now, if ever.
        lists: list[tuple[str, ...]] = [("LLEN", self._key), ("LLEN", self._processing)]
        read, self._read = self._read, []
        if read:
            lists.append(("DEL", *read))
        replies = await connection.talk(*lists)
        self._length, processing = checked(replies[:2])
        patience = _LATE if self._length or processing else _LOST
        hosts = list(self.open.values())
        if not hosts:
            self._heard_at = self._clock()
        for at in range(0, len(hosts), _ASKED):
            if not await self._ask(connection, hosts[at : at + _ASKED], patience):
                return

    async def _ask(self, connection: RedisConnection, hosts: list[_Host], patience: float) -> bool:
        """Whether there is news of any."""
        (said,) = checked(await connection.talk(("MGET", *(host.key for host in hosts))))
        now = self._clock()
        is_news = False
        for host, value in zip(hosts, said, strict=True):
            if value == REFUSED:
                self._keep(host)
            elif self._hear(host, value):
                host.since = self._heard_at = now
            elif host.sizes and now - host.since > patience:
                self._stats.again += len(host.sizes)
                host.send_again()
            else:
                continue
            is_news = True
            if host.name in self.open:
                # What is next of it comes after what is of the others.
                self.open[host.name] = self.open.pop(host.name)
        return is_news

    def _hear(self, host: _Host, value: bytes | None) -> bool:
        # Anybody may have written it. How many there are at most, the cut says.
        if value is None or not value.isdigit() or len(value) > 9:
            return False
        if (arrived := int(value)) == host.arrived:
            return False
        host.set_arrived(arrived)
        return True
