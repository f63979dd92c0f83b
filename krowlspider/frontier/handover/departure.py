"""Hosts on their way out: cut into chunks, and removed when the other frontier has all of them.

While it is under way a host is sealed: nothing of it is popped, and nothing may be added. So its chunks are the same
whenever they are cut, by another process too, and the other frontier knows by their numbers where to go on.
"""

from __future__ import annotations

from base64 import b64encode
from itertools import islice
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_64_digest

from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.handover.chunks import (
    CHUNK_BYTES,
    CHUNK_ITEMS,
    KEYS_AN_ITEM,
    ROBOTS_MAX,
    entry_line,
    host_line,
)
from krowlspider.frontier.handover.transfer import entries_of, give_up
from krowlspider.frontier.hosts.host import IN_FLIGHT, SEALED
from krowlspider.frontier.hosts.record import encode_host
from krowlspider.frontier.part import stays
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import records
from krowlspider.frontier.store.schema import authorities_of, split_queue_key
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.part import Identify
    from krowlspider.frontier.robots.fetches import RobotsFetches
    from krowlspider.frontier.store.store import Store

# Host records looked at in one step of `Departures.moving`: 6 ms.
_STEP = 1000
# What an entry takes in JSON besides what it takes on disk, and that again in a request of JSON in base64.
_ENTRY_OVERHEAD = 100

Chunk = dict[str, Any]


class Departures:
    """The hosts that leave a frontier. ``node`` is the id of this node, ``identify`` gives the identity of an entry as
    the dupefilter does, and raises ValueError for a request that another node could not read. ``most`` is the number of
    entries of a chunk."""

    def __init__(
        self,
        frontier: Frontier,
        store: Store,
        robots_fetches: RobotsFetches,
        *,
        node: str,
        identify: Identify,
        most: int = CHUNK_ITEMS,
    ):
        self.frontier = frontier
        self.store = store
        self._robots_fetches = robots_fetches
        self.node = node
        self.identify = identify
        self.most = most
        self.under_way: dict[str, Departure] = {}
        # Of hosts that are gone: entries that stay here, as no other node could read them.
        self.kept: dict[str, int] = {}

    def moving(self, owner_of: Callable[[str], str | None]) -> Iterator[list[tuple[str, str]]]:
        """Hosts that belong to others, with their owners, some at each step, of which many find none. ``owner_of`` says
        who owns a domain, None for us. Those that are under way, or have left but for what stays, are not told."""
        # First, as they may have a record before the last step.
        unrecorded = self._unrecorded()
        yield self._others(unrecorded, owner_of)
        after = ""
        while names := [name for name, _ in islice(records(self.store, after), _STEP)]:
            after = names[-1]
            yield self._others([name for name in names if name not in unrecorded], owner_of)

    def _unrecorded(self) -> dict[str, None]:
        """Hosts of which memory alone knows that they are asked, as for the robots.txt of another."""
        busy = [
            host.name
            for host in self.frontier.schedule.cache.hosts.values()
            if host.robots.fetches or host.state is IN_FLIGHT
        ]
        return {name: None for name in busy if self.store.get(schema.host_key(name)) is None}

    def _others(
        self, names: Iterable[str], owner_of: Callable[[str], str | None]
    ) -> list[tuple[str, str]]:
        found = [(name, owner_of(domain_of(name))) for name in names]
        return [
            (name, owner)
            for name, owner in found
            if owner is not None and name not in self.under_way and name not in self.kept
        ]

    def begin(self, name: str) -> Departure:
        """Seal a host. Robots fetches that waited for its turn are over, and so is its own that waits for another's.

        :raises HostBusyError: it has a request in flight or pages that are not acknowledged
        """
        self._robots_fetches.abandon(name)
        self._robots_fetches.call_back(name)
        departure = self.under_way[name] = Departure(
            self, self.frontier.schedule.ownership.seal(name)
        )
        return departure

    def stop(self) -> None:
        """The ring is another: hosts that are under way stay, and those whose removal has begun are gone at once. To be
        called before anything is done by the new ring.

        One that another node has and that stays goes with the new ring, to be merged with what that one has."""
        self.kept.clear()
        for departure in list(self.under_way.values()):
            if departure.is_ending:
                for _ in departure.end():
                    pass
            else:
                departure.abort()


class Departure:
    """One host on its way out."""

    def __init__(self, departures: Departures, host: Host):
        self._all = departures
        self._frontier = departures.frontier
        self._store = departures.store
        self._identify = departures.identify
        self._most = departures.most
        self._host = host
        # By what it has: should this process die, the next one's is the same, as long as nothing has changed.
        self.transfer = xxh3_64_digest(
            departures.node.encode() + b"\0" + (host.record or encode_host(host))
        )
        self._begin_cut()
        self._steps: Iterator[None] | None = None
        self.is_ending = False

    def _begin_cut(self) -> None:
        self._cut = self._chunks()
        self._number = -1
        self._last: Chunk | None = None

    def skip(self, arrived: int) -> Iterator[None]:
        """Cut up to the chunk after so many, one at each step: what `chunk` does else at once. Should fewer have arrived
        than before, as the other node lost what was not on its disk, they are cut again."""
        if arrived < self._number:
            self._begin_cut()
        while self._number < arrived and (chunk := next(self._cut, None)) is not None:
            self._last = chunk
            self._number += 1
            yield

    def chunk(self, arrived: int) -> Chunk | None:
        """The chunk to send when so many have arrived; None when those were all: `end` is to follow.

        :raises ValueError: it is not under way any more
        :raises LookupError: there are not so many: that they have arrived is not true, or not of what is here now
        """
        if self._host.state is not SEALED:
            raise ValueError(f"{self._host.name} is not under way")
        for _ in self.skip(arrived):
            pass
        if arrived > self._number + 1:
            raise LookupError(f"{self._host.name} has {self._number + 1} chunks, not {arrived}")
        return self._last if arrived == self._number else None

    def begin_again(self) -> None:
        """What was said to have arrived is not believed: all goes as another transfer, to be merged with what has come."""
        self.transfer = xxh3_64_digest(self.transfer)
        self._begin_cut()

    def _chunks(self) -> Iterator[Chunk]:
        host = self._host
        now = self._frontier.now()
        chunk = self._blank(0)
        chunk["record"] = host_line(host, now)
        size = 0
        for kind, most, length, item in self._items(now):
            if size + length > CHUNK_BYTES or len(chunk.get(kind, ())) >= most:
                yield _packed(chunk)
                chunk, size = self._blank(chunk["number"] + 1), 0
            chunk.setdefault(kind, []).append(item)
            size += length
        chunk["last"] = True
        yield _packed(chunk)

    def _blank(self, number: int) -> Chunk:
        return {
            "host": self._host.name,
            "transfer": self.transfer.hex(),
            "number": number,
            "last": False,
        }

    def _items(self, now: float) -> Iterator[tuple[str, int, int, Any]]:
        """Kind, how many a chunk may have, bytes in JSON, and the item."""
        name = self._host.name
        both = authorities_of(name)
        for authority, record in zip(
            both, self._store.read(map(schema.robots_key, both)), strict=True
        ):
            if record is not None and len(record) <= ROBOTS_MAX:
                text = b64encode(record).decode()
                yield "robots", self._most, len(text), [authority, text]
        queued: set[bytes] = set()
        for state, key, value in entries_of(self._frontier, name):
            entry = entry_of(key, value)
            if stays(entry, self._identify):
                continue
            identity = self._identify(entry) if state == "queued" else None
            free = identity in queued
            if identity is not None:
                queued.add(identity)
            line = entry_line(split_queue_key(key)[1], entry, state, now, free=free)
            length = 2 * len(value) + len(name) * (2 + len(entry.chain)) + _ENTRY_OVERHEAD
            yield "entries", self._most, length, line
        for identity in schema.marked_by(self._store.items(schema.seen_prefix(name))):
            if identity not in queued:
                yield "done", self._most * KEYS_AN_ITEM, 11, identity

    def end(self) -> Iterator[None]:
        """The other node has all: remove it here, some at each step. A process that dies in between goes on with it when
        it starts."""
        if self._steps is None:
            self._steps = self._removal()
        return self._steps

    def _removal(self) -> Iterator[None]:
        self.is_ending = True
        host = self._host
        kept = give_up(self._frontier, host, self._identify)
        yield
        yield from self._frontier.seen.remove_marks(host.name)
        del self._all.under_way[host.name]
        if kept:
            self._all.kept[host.name] = kept
            self._frontier.schedule.ownership.unseal(host)
        else:
            self._frontier.schedule.cache.remove(host)

    def abort(self) -> None:
        """The host stays, with all that it has."""
        del self._all.under_way[self._host.name]
        self._frontier.schedule.ownership.unseal(self._host)


def _packed(chunk: Chunk) -> Chunk:
    """The chunk as JSON can have it."""
    if keys := chunk.get("done"):
        chunk["done"] = b64encode(b"".join(keys)).decode()
    return chunk
