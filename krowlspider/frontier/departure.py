"""Hosts on their way out: cut into chunks, and removed when the other frontier has all of them.

While it is under way a host is sealed: nothing of it is popped, and nothing may be added. So its chunks are the same
whenever they are cut, by another process too, and the other frontier knows by their numbers where to go on.
"""

from __future__ import annotations

from base64 import b64encode
from itertools import islice
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_64_digest

from krowlspider.frontier import schema
from krowlspider.frontier.chunks import (
    CHUNK_BYTES,
    CHUNK_ITEMS,
    KEYS_AN_ITEM,
    ROBOTS_MAX,
    entry_line,
    host_line,
)
from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.handover import stays
from krowlspider.frontier.schema import authorities_of, split_queue_key
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.handover import Identify
    from krowlspider.frontier.hosts import Host
    from krowlspider.frontier.robots import RobotsGate
    from krowlspider.frontier.store import Store

# Host records looked at in one step of `Departures.moving`: 1 to 5 ms.
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
        gate: RobotsGate,
        *,
        node: str,
        identify: Identify,
        most: int = CHUNK_ITEMS,
    ):
        self.frontier = frontier
        self.store = store
        self._gate = gate
        self.node = node
        self.identify = identify
        self.most = most
        self.under_way: dict[str, Departure] = {}
        # Of hosts that are gone: entries that stay here, as no other node could read them.
        self.kept: dict[str, int] = {}

    def moving(self, owner_of: Callable[[str], str | None]) -> Iterator[list[tuple[str, str]]]:
        """Hosts that belong to others, with their owners, some at each step, of which many find none. ``owner_of`` says
        who owns a domain, None for us. Those that are under way, or have left but for what stays, are not told."""
        after = schema.HOST
        while keys := list(islice(self.store.keys(schema.HOST, after), _STEP)):
            after = keys[-1]
            names = [key[1:].decode() for key in keys]
            owners = [owner_of(domain_of(name)) for name in names]
            yield [
                (name, owner)
                for name, owner in zip(names, owners, strict=True)
                if owner is not None and name not in self.under_way and name not in self.kept
            ]

    def begin(self, name: str) -> Departure:
        """Seal a host. Errands that waited for its turn are over.

        :raises HostBusyError: it has a request in transit or pages that are not acknowledged
        """
        self._gate.abandon(name)
        departure = self.under_way[name] = Departure(self, self.frontier.seal(name))
        return departure

    def stop(self) -> None:
        """The ring is another: hosts that others do not have yet stay, those that they have are gone at once. To be
        called before anything is done by the new ring."""
        self.kept.clear()
        for departure in list(self.under_way.values()):
            if departure.delivered:
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
        self.transfer = xxh3_64_digest(departures.node.encode() + b"\0" + host.encode())
        self._cut = self._chunks()
        self._number = -1
        self._steps: Iterator[None] | None = None
        self.delivered = False

    def chunk(self, arrived: int) -> Chunk | None:
        """The chunk to send when so many have arrived; None when those were all: `end` is to follow. Should fewer have
        arrived than before, as the other node lost what was not on its disk, they are cut again.

        :raises ValueError: it is not under way any more
        """
        if not self._host.leaving:
            raise ValueError(f"{self._host.name} is not under way")
        if arrived <= self._number:
            self._cut, self._number = self._chunks(), -1
        while self._number < arrived:
            chunk = next(self._cut, None)
            if chunk is None:
                self.delivered = True
                return None
            self._number += 1
        return chunk

    def _chunks(self) -> Iterator[Chunk]:
        host = self._host
        now = self._frontier.now()
        chunk = self._blank(0)
        chunk["record"] = host_line(host, now, self._frontier.surely_over(host))
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
        for authority in authorities_of(name):
            # Not by iterator, which would walk over all that has left, where there is none.
            record = self._store.get(schema.robots_key(authority))
            if record is not None and len(record) <= ROBOTS_MAX:
                text = b64encode(record).decode()
                yield "robots", self._most, len(text), [authority, text]
        queued: set[bytes] = set()
        for state, key, value in self._frontier.entries(name):
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
        self.delivered = True
        if self._steps is None:
            self._steps = self._removal()
        return self._steps

    def _removal(self) -> Iterator[None]:
        host = self._host
        kept = self._frontier.give_up_host(host, self._identify)
        yield
        yield from self._frontier.seen.remove_marks(host.name)
        del self._all.under_way[host.name]
        if kept:
            self._all.kept[host.name] = kept
            self._frontier.unseal(host)
        else:
            self._frontier.drop_from_memory(host)

    def abort(self) -> None:
        """The host stays, with all that it has."""
        del self._all.under_way[self._host.name]
        self._frontier.unseal(self._host)


def _packed(chunk: Chunk) -> Chunk:
    """The chunk as JSON can have it."""
    if keys := chunk.get("done"):
        chunk["done"] = b64encode(b"".join(keys)).decode()
    return chunk
