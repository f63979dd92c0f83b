"""The hosts that go to one node: which are under way, and when to send what.

Chunks go to a list in the owner's Redis. The owner writes there how many chunks of a host have
arrived and are durable. A chunk that is not among them is sent again; one that arrives twice
changes nothing.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from krowlspider.cluster.transport.inbox import hosts_key
from krowlspider.cluster.transport.list_reader import processing_key
from krowlspider.cluster.transport.redis_connection import checked
from krowlspider.crawl.handover.host import HostHandover, TooLongError
from krowlspider.crawl.handover.receiver import REFUSED
from krowlspider.frontier.hosts.scheduling import HostBusyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.cluster.transport.redis_connection import RedisConnection
    from krowlspider.crawl.handover.loop_share import LoopShare
    from krowlspider.frontier.handover.departure import Departures

logger = logging.getLogger(__name__)

# Most hosts under way to one node.
WINDOW = 512
# Hosts whose acknowledgements are read at a time, the oldest first.
_READ_AT_ONCE = 64
# Bytes under way to one node, and in one push.
_WINDOW_BYTES = 8 << 20
_PUSH_BYTES = 1 << 20
# Chunks in a node's list, from all nodes, beyond which nothing is sent.
_LIST_MAX = 1000
# Seconds between two tries of hosts with a request in flight.
_BUSY = 0.5
# Seconds after which a chunk that is not acknowledged is sent again: while the node's lists are
# empty, it was lost or not taken; otherwise it may be behind those of other nodes.
_LOST = 0.5
_LATE = 10.0
# Seconds without an acknowledgement after which nothing waits for a node.
_STUCK = 5.0


@dataclass(slots=True)
class HandoverStats:
    """Since this start: hosts that arrived at their owners, and hosts that these refused.

    ``chunks`` were sent, ``again`` of them more than once; ``failed`` are failed calls by kind.
    """

    hosts: int = 0
    chunks: int = 0
    again: int = 0
    refused: int = 0
    failed: Counter[str] = field(default_factory=Counter)


class PeerHandover:
    """The hand-over to the node ``owner``.

    ``waiting`` hosts are not begun, ``busy`` ones cannot leave yet, ``open`` ones are under way.
    ``share`` limits the time of each step on the event loop.
    """

    def __init__(
        self,
        owner: str,
        departures: Departures,
        spider: str,
        *,
        share: LoopShare,
        stats: HandoverStats,
        clock: Callable[[], float],
    ) -> None:
        self.owner = owner
        self.waiting: deque[str] = deque()
        self.busy: list[str] = []
        self.open: dict[str, HostHandover] = {}
        self._departures = departures
        self._spider = spider
        self._key = hosts_key(spider)
        self._processing = processing_key(self._key, owner)
        self._share = share
        self._stats = stats
        self._clock = clock
        # Keys of acknowledgements that are not needed any more.
        self._old_keys: list[str] = []
        # The last known length of the owner's list.
        self._length = 0
        self._retry_busy_at = -inf
        # When something was acknowledged last, or nothing was open.
        self._heard_at = clock()

    @property
    def is_active(self) -> bool:
        return bool(self.waiting or self.busy or self.open or self._old_keys)

    @property
    def is_stuck(self) -> bool:
        return self._clock() - self._heard_at > _STUCK

    async def turn(self, connection: RedisConnection) -> None:
        """Read what has arrived, and send all that there is room for.

        :raises RedisTrouble: a call to the owner's Redis failed; nothing is lost
        """
        await self._read_arrived(connection)
        if self.busy and self._clock() >= self._retry_busy_at:
            self._retry_busy_at = self._clock() + _BUSY
            self.waiting.extendleft(reversed(self.busy))
            self.busy.clear()
        while self._length < _LIST_MAX and (chunks := await self._next_chunks()):
            # The first value is pushed first, so the owner pops it first. The reply is the length.
            self._length = await connection.call("LPUSH", self._key, *chunks, is_bulk=True)

    async def _next_chunks(self) -> list[bytes]:
        """Return the next chunks for one push: of hosts under way, then of waiting ones."""
        chunks: list[bytes] = []
        under_way = sum(sum(host.sizes) for host in self.open.values())
        room = min(_PUSH_BYTES, _WINDOW_BYTES - under_way)
        hosts = deque(host for host in self.open.values() if host.has_next)
        while room > 0 and (hosts or (self.waiting and len(self.open) < WINDOW)):
            host = hosts.popleft() if hosts else await self._begin()
            data = None if host is None else await self._next_chunk(host)
            if data is not None:
                chunks.append(data)
                room -= len(data)
        return chunks

    async def _begin(self) -> HostHandover | None:
        """Begin the next waiting host; return None if it cannot leave yet."""
        name = self.waiting.popleft()
        async with self._share:
            try:
                departure = self._departures.begin(name)
            except HostBusyError:
                self.busy.append(name)
                return None
            host = self.open[name] = HostHandover(name, departure, self._spider, self._clock)
        return host

    async def _next_chunk(self, host: HostHandover) -> bytes | None:
        """Return the next chunk of a host, None if there is none. End a host that has arrived."""
        key = host.key
        try:
            data = await host.next_chunk(self._share)
        except TooLongError:
            self._keep(host)
            return None
        if data is not None:
            self._stats.chunks += 1
        elif host.is_delivered:
            try:
                await host.remove(self._share)
            finally:
                self._close(host)
                self._stats.hosts += 1
        elif host.key != key:
            self._old_keys.append(key)
        return data

    def _keep(self, host: HostHandover) -> None:
        """Keep a host that its owner cannot take, until the ring changes."""
        host.departure.abort()
        self._departures.kept[host.name] = 1
        self._close(host)
        self._stats.refused += 1
        if self._stats.refused == 1:
            logger.warning(
                "Node %s cannot take host %s, which stays here, and maybe others: an entry is too"
                " long, or see its dead list",
                *(self.owner, host.name),
            )

    def _close(self, host: HostHandover) -> None:
        del self.open[host.name]
        self._old_keys.append(host.key)

    async def _read_arrived(self, connection: RedisConnection) -> None:
        # The lists first: a chunk that is in neither has been acknowledged by now, if ever.
        commands: list[tuple[str, ...]] = [("LLEN", self._key), ("LLEN", self._processing)]
        old, self._old_keys = self._old_keys, []
        if old:
            commands.append(("DEL", *old))
        self._length, processing = checked((await connection.call_all(*commands))[:2])
        patience = _LATE if self._length or processing else _LOST
        hosts = list(self.open.values())
        if not hosts:
            self._heard_at = self._clock()
        for at in range(0, len(hosts), _READ_AT_ONCE):
            if not await self._read_some(connection, hosts[at : at + _READ_AT_ONCE], patience):
                return

    async def _read_some(
        self, connection: RedisConnection, hosts: list[HostHandover], patience: float
    ) -> bool:
        """Read the acknowledgements of some hosts; return whether any has news."""
        values = await connection.call("MGET", *(host.key for host in hosts))
        now = self._clock()
        has_news = False
        for host, value in zip(hosts, values, strict=True):
            if value == REFUSED:
                self._keep(host)
            elif host.acknowledge(value):
                self._heard_at = now
            elif host.sizes and now - host.since > patience:
                self._stats.again += len(host.sizes)
                host.send_again()
            else:
                continue
            has_news = True
            if host.name in self.open:
                # Its next chunk comes after those of other hosts.
                self.open[host.name] = self.open.pop(host.name)
        return has_news
