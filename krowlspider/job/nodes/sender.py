"""Hand the hosts of other nodes over to them, in rounds, to all in parallel.

The hand-over of hosts to one node, in rounds. A round reads acknowledgements: the owner writes in
its Redis how many chunks of each host have arrived and are durable. Then it removes the hosts that
have arrived, and pushes chunks to a list in the owner's Redis, until as many as WINDOW and
WINDOW_BYTES permit are not acknowledged. So both nodes work at the same time. A chunk that is not
acknowledged is sent again in a later round; one that arrives twice changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from krowlspider.cluster.transport.inbox import MAX_CHUNK, hosts_key
from krowlspider.cluster.transport.redis_connection import (
    Backoff,
    RedisConnection,
    RedisTrouble,
    checked,
)
from krowlspider.frontier.moves.chunks import encode_chunk
from krowlspider.frontier.schedule.ownership import HostBusyError
from krowlspider.job.nodes.receiver import REAL_TIME, REFUSED, SHARE, LoopShare, Time, arrived_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redis.asyncio import Redis

    from krowlspider.frontier.moves.departure import Departure, Departures

logger = logging.getLogger(__name__)

# Most hosts of a node that are sent and not acknowledged, and most bytes of their chunks. The last
# chunk may exceed the bytes.
WINDOW = 800
WINDOW_BYTES = 8 << 20
# Bytes of one push. The owner takes them while the next ones are read here.
_PUSH_BYTES = 128 << 10
# Chunks in a node's list, from all nodes, beyond which nothing is sent.
_LIST_MAX = 1000
# Acknowledgements that are read in one call.
_ASKED = 256
# Seconds between two tries of hosts with a request in flight.
_BUSY = 0.5
# Seconds without an acknowledgement after which chunks are sent again: while the node's list is
# empty, they were lost or not taken; otherwise they may be behind those of other nodes.
_LOST = 0.5
_LATE = 10.0
# Seconds without an acknowledgement after which nothing waits for a node.
_STUCK = 5.0
# Seconds in which nothing moves, after which a warning says why, each time.
_STALLED = 30.0


@dataclass(slots=True)
class HandoverStats:
    """Since this start: hosts handed over and refused, chunks sent, those sent again."""

    hosts: int = 0
    refused: int = 0
    chunks: int = 0
    again: int = 0
    # Failed calls by kind.
    failed: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class _Host:
    """A host under way: ``sent`` chunks, of which ``arrived`` are acknowledged at ``key``.

    ``total`` is the number of its chunks, 0 while it is not known. ``size`` is the bytes of those
    sent and not acknowledged.
    """

    name: str
    departure: Departure
    key: str
    arrived: int = 0
    sent: int = 0
    total: int = 0
    size: int = 0

    @property
    def missing(self) -> int:
        return self.sent - self.arrived

    def acknowledge(self, arrived: int) -> None:
        """Note that so many chunks have arrived. If it is less than before, the other node has lost
        what it had: the others are sent again."""
        missing = self.missing
        self.sent = arrived if arrived < self.arrived else max(self.sent, arrived)
        self.arrived = arrived
        self.size = self.size * self.missing // missing if self.missing else 0

    @property
    def is_waiting(self) -> bool:
        """Return whether all chunks are sent, and not all acknowledged."""
        return self.arrived < self.sent == self.total


class PeerHandover:
    """The hand-over to ``owner``: ``waiting`` hosts are not begun, ``busy`` ones cannot leave."""

    def __init__(
        self,
        owner: str,
        departures: Departures,
        spider: str,
        *,
        share: LoopShare,
        stats: HandoverStats,
        time: Time,
    ) -> None:
        self.owner = owner
        self.waiting: deque[str] = deque()
        self.busy: list[str] = []
        self.open: dict[str, _Host] = {}
        self._departures = departures
        self._spider = spider
        self._key = hosts_key(spider)
        self._share = share
        self._stats = stats
        self._time = time
        # Keys of acknowledgements that are not needed any more.
        self._old_keys: list[str] = []
        self._retry_busy_at = -inf
        # Whether chunks that are not acknowledged are to be sent again.
        self._send_again = False
        # When chunks were sent or acknowledged last.
        self._news_at = -inf
        # When something was acknowledged last, or could be sent with nothing open.
        self._heard_at = time.clock()
        # When something was acknowledged or ended last, or a warning said why not.
        self._moved_at = time.clock()
        # Why a host of `busy` could not leave.
        self._busy_because = ""

    @property
    def is_active(self) -> bool:
        return bool(self.waiting or self.busy or self.open or self._old_keys)

    @property
    def is_stuck(self) -> bool:
        return self._time.clock() - self._heard_at > _STUCK

    def add(self, name: str) -> None:
        """Let a host wait for its turn."""
        if not self.is_active:
            self._heard_at = self._moved_at = self._time.clock()
        self.waiting.append(name)

    def warn_if_stalled(self, *, is_member: bool) -> None:
        """Log why nothing moves, once nothing has moved for a while. ``is_member``: the owner has a
        Redis to send to."""
        now = self._time.clock()
        if not self.is_active or now < self._moved_at + _STALLED:
            return
        self._moved_at = now
        if not is_member:
            why = "the node takes no messages: it is dead, leaving, or no member"
        elif self.open:
            why = f"{next(iter(self.open))} waits for the node to take it"
        elif self.busy:
            why = self._busy_because
        else:
            why = "its Redis does not answer, or its list is full"
        logger.warning(
            "No host has moved to node %s for %d s: %s. Hosts left for it: %d",
            *(self.owner, _STALLED, why, len(self.open) + len(self.busy) + len(self.waiting)),
        )

    async def run_round(self, connection: RedisConnection) -> None:
        """Read acknowledgements, and send all that there is room for. Do not wait for anything.

        :raises RedisTrouble: a call to the owner's Redis failed; nothing is lost
        """
        # The list first: a chunk that is not in it is acknowledged, or lost.
        in_list = await self._length(connection)
        await self._hear(connection, in_list=in_list)
        if self.busy and self._time.clock() >= self._retry_busy_at:
            self._retry_busy_at = self._time.clock() + _BUSY
            self.waiting.extendleft(reversed(self.busy))
            self.busy.clear()
        if in_list < _LIST_MAX:
            if not self.open:
                self._heard_at = self._time.clock()
            if self._send_again:
                self._take_back()
            # Until all is sent.
            self._send_again = True
            await self._send(connection)
            self._send_again = False

    async def _length(self, connection: RedisConnection) -> int:
        """Return the length of the owner's list. Remove old keys."""
        old, self._old_keys = self._old_keys, []
        delete = [("DEL", *old)] if old else []
        length, *_ = checked(await connection.call_all(("LLEN", self._key), *delete))
        return int(length)

    async def _hear(self, connection: RedisConnection, *, in_list: int) -> None:
        """Read acknowledgements. If chunks seem to be lost, note that they are to be sent again."""
        now = self._time.clock()
        if await self._read_acknowledgements(connection):
            self._news_at = self._moved_at = self._heard_at = now
        elif now - self._news_at > (_LATE if in_list else _LOST):
            self._send_again = any(host.missing for host in self.open.values())

    def _take_back(self) -> None:
        """Count chunks that are not acknowledged as not sent."""
        for host in self.open.values():
            self._stats.again += host.missing
            host.sent, host.size = host.arrived, 0

    async def _send(self, connection: RedisConnection) -> None:
        """Push the next chunks: of hosts under way, then of waiting ones."""
        room = pushed = WINDOW_BYTES - sum(host.size for host in self.open.values())
        chunks: list[bytes] = []
        hosts = deque(host for host in self.open.values() if not host.is_waiting)
        while room > 0 and (host := hosts.popleft() if hosts else await self._begin()):
            while room > 0 and (data := await self._next_chunk(host)) is not None:
                chunks.append(data)
                host.size += len(data)
                room -= len(data)
                if pushed - room >= _PUSH_BYTES:
                    pushed = room
                    await self._push(connection, chunks)
            if room <= 0 and host.name in self.open:
                # In the next round, other hosts come first.
                self.open[host.name] = self.open.pop(host.name)
        await self._push(connection, chunks)

    async def _push(self, connection: RedisConnection, chunks: list[bytes]) -> None:
        if chunks:
            # The first value is pushed first, so the owner pops it first.
            await connection.call("LPUSH", self._key, *chunks, is_bulk=True)
            self._stats.chunks += len(chunks)
            self._news_at = self._time.clock()
            chunks.clear()

    async def _begin(self) -> _Host | None:
        """Begin the next waiting host that can leave; None if there is none, or no room."""
        while self.waiting and len(self.open) < WINDOW:
            name = self.waiting.popleft()
            async with self._share:
                try:
                    departure = self._departures.begin(name)
                except HostBusyError as error:
                    self.busy.append(name)
                    self._busy_because = str(error)
                    continue
                self.open[name] = _Host(name, departure, self._key_of(name, departure))
            return self.open[name]
        return None

    def _key_of(self, name: str, departure: Departure) -> str:
        return arrived_key(self._spider, name, departure.transfer.hex())

    async def _next_chunk(self, host: _Host) -> bytes | None:
        """Return the next chunk of a host, None if there is none. End a host that has arrived."""
        if host.is_waiting:
            return None
        steps = host.departure.skip(host.sent)
        is_over = False
        while not is_over:
            async with self._share:
                is_over = next(steps, True) is True
                data = self._cut(host) if is_over else None
        if data is None:
            if host.total == host.arrived > 0:
                await self._remove(host)
            return None
        if len(data) > MAX_CHUNK:
            self._keep(host)
            return None
        host.sent += 1
        return data

    def _cut(self, host: _Host) -> bytes | None:
        """Return the next chunk of a host as JSON, None if there is none, or all are sent again."""
        try:
            chunk = host.departure.chunk(host.sent)
        except LookupError:
            self._restart(host)
            return None
        if chunk is None or chunk.last:
            host.total = host.sent + (chunk is not None)
        return None if chunk is None else encode_chunk(chunk)

    async def _remove(self, host: _Host) -> None:
        """Remove a host that has arrived.

        A cancellation waits for the end: `Departures.stop` would remove the rest in one long step.
        """
        steps = host.departure.end()
        cancelled: asyncio.CancelledError | None = None
        is_over = False
        while not is_over:
            try:
                async with self._share:
                    is_over = next(steps, True) is True
            except asyncio.CancelledError as error:
                cancelled = error
        self._close(host)
        self._stats.hosts += 1
        if cancelled is not None:
            raise cancelled

    def _restart(self, host: _Host) -> None:
        """Send a host from its begin, because its acknowledgement cannot be true."""
        logger.warning("Sending host %s again: more chunks are acknowledged than exist", host.name)
        self._old_keys.append(host.key)
        host.departure.begin_again()
        host.key = self._key_of(host.name, host.departure)
        host.arrived = host.sent = host.total = host.size = 0

    def _keep(self, host: _Host) -> None:
        """Keep a host that its owner cannot take, until the ring changes."""
        host.departure.abort()
        self._departures.kept[host.name] = 1
        self._close(host)
        self._stats.refused += 1
        if self._stats.refused == 1:
            logger.warning(
                "Node %s refuses host %s, which stays here: an entry is too long, or its dead list"
                " has the reason. Further refusals are only counted",
                *(self.owner, host.name),
            )

    def _close(self, host: _Host) -> None:
        self._moved_at = self._time.clock()
        del self.open[host.name]
        self._old_keys.append(host.key)

    async def _read_acknowledgements(self, connection: RedisConnection) -> bool:
        """Return whether there is any news."""
        hosts = [host for host in self.open.values() if host.missing > 0]
        news = 0
        for at in range(0, len(hosts), _ASKED):
            some = hosts[at : at + _ASKED]
            values = await connection.call("MGET", *(host.key for host in some))
            news += sum(map(self._has_news, some, values))
        return news > 0

    def _has_news(self, host: _Host, value: bytes | None) -> bool:
        """Take an acknowledgement of a host; return whether it is new."""
        if value == REFUSED:
            self._keep(host)
            return True
        # Anybody may have written it. A number that is too high fails in `Departure.chunk`.
        if value and value.isdigit() and len(value) < 10 and int(value) != host.arrived:
            host.acknowledge(int(value))
            return True
        return False


# Seconds between two looks for acknowledgements.
_POLL = 0.05
# Least and most seconds to wait after a failed call.
_BACKOFF = (0.5, 10.0)
# Most hosts that wait for one node. The next scan finds the others of a node that is stuck.
_WAITING = 10_000


class HandoverSender:
    """Hands hosts over to their owners, within a ``share`` of the event loop's time.

    ``client_for`` returns the client of an owner's Redis, None while it is no member.
    """

    def __init__(
        self,
        departures: Departures,
        client_for: Callable[[str], Redis | None],
        spider: str,
        *,
        share: Callable[[], float] = lambda: SHARE,
        time: Time = REAL_TIME,
    ) -> None:
        self._departures = departures
        self._client_for = client_for
        self._spider = spider
        self._time = time
        self._share = LoopShare(share, time)
        self._peers: dict[str, PeerHandover] = {}
        self.stats = HandoverStats()

    @property
    def open(self) -> int:
        return sum(len(peer.open) for peer in self._peers.values())

    async def send_all(
        self,
        owner_of: Callable[[str], str | None],
        ranges: Sequence[tuple[int, int]],
    ) -> None:
        """Return when nothing of other nodes is left here. A node in trouble holds up no other.

        ``owner_of`` and ``ranges`` are as in `Departures.moving`.

        If this is cancelled, or raises, `Departures.stop` must follow.

        :raises ExceptionGroup: the departures failed
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                workers: list[asyncio.Task[None]] = []

                def begin(peer: PeerHandover) -> None:
                    workers.append(tasks.create_task(self._serve(peer)))

                while await self._scan(self._departures.moving(owner_of, ranges), begin):
                    while any(peer.is_active for peer in self._peers.values()):
                        await self._time.sleep(_POLL)
                        self._warn_of_stalls()
                for worker in workers:
                    worker.cancel()
        finally:
            self._peers.clear()

    def _warn_of_stalls(self) -> None:
        for owner, peer in self._peers.items():
            peer.warn_if_stalled(is_member=self._client_for(owner) is not None)

    async def _scan(
        self, steps: Iterator[list[tuple[str, str]]], begin: Callable[[PeerHandover], None]
    ) -> bool:
        """Give all hosts of other nodes to their peers; return whether there was any."""
        found = False
        while True:
            async with self._share:
                step = next(steps, None)
            if step is None:
                return found
            found = found or bool(step)
            for name, owner in step:
                if owner not in self._peers:
                    self._peers[owner] = PeerHandover(
                        owner,
                        self._departures,
                        self._spider,
                        share=self._share,
                        stats=self.stats,
                        time=self._time,
                    )
                    begin(self._peers[owner])
                await self._enqueue(name, self._peers[owner])

    async def _enqueue(self, name: str, peer: PeerHandover) -> None:
        while len(peer.waiting) >= _WAITING:
            if peer.is_stuck:
                # The next scan finds this host.
                return
            await self._time.sleep(_POLL)
        peer.add(name)

    async def _serve(self, peer: PeerHandover) -> None:
        name = f"Handing hosts over to node {peer.owner}"
        backoff = Backoff(*_BACKOFF, name=name, failed=self.stats.failed)
        client: Redis | None = None
        connection: RedisConnection | None = None
        try:
            while True:
                wait = _POLL
                if (now := self._client_for(peer.owner)) is not client:
                    if connection is not None:
                        await connection.close()
                    client, connection = now, None if now is None else RedisConnection(now)
                try:
                    if connection is not None and peer.is_active:
                        await peer.run_round(connection)
                        backoff.succeed()
                except RedisTrouble as error:
                    wait = backoff.fail(error)
                await self._time.sleep(wait)
        finally:
            if connection is not None:
                await connection.close()
