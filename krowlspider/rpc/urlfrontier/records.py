"""What the URLFrontier service keeps of a URL and of a queue, in the store of the frontier.

`SERVED` is the first byte of each key, and the second is its kind: ``i`` host ``00`` identity has
an `Item`, ``t`` time host ``00`` identity is empty and says when a lease ends or a page is due
again, ``q`` host has a `QueueState`, ``x`` host is empty and says that a queue is being deleted,
``s`` has a `CrawlState`. ``time`` has 8 bytes, milliseconds since the epoch.
"""

from __future__ import annotations

from enum import IntEnum
from math import inf
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from krowlspider.frontier.served import CrawlState, put_state, read_state
from krowlspider.frontier.store.schema import KEY_SIZE, SERVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.frontier.store.store import Batch, Store

_ITEMS = SERVED + b"i"
TIMES = SERVED + b"t"
QUEUES = SERVED + b"q"
_LEAVING = SERVED + b"x"


class Phase(IntEnum):
    """Where a URL is. Its item stores the number of the member."""

    QUEUED = 0  # it has an entry in the queue of its host
    LEASED = 1  # a client has it; its entry stays
    SCHEDULED = 2  # it is queued again when its time comes
    DONE = 3  # it is not sent again
    PURGED = 4  # nothing is known of it but that it has a seen mark


class Item(Struct, array_like=True, frozen=True):
    """A URL as clients know it. All times are in seconds since the epoch.

    ``due``: from when on it may be sent. ``until``: the end of its lease. ``priority`` and
    ``sequence`` name its entry while it is queued or leased.
    """

    url: str
    phase: Phase
    created: float
    due: float = 0.0
    until: float = 0.0
    priority: int = 0
    sequence: int = 0
    metadata: dict[str, list[str]] = {}

    @property
    def time(self) -> float | None:
        """Return when something becomes of it without a client; None for never."""
        if self.phase is Phase.LEASED:
            return self.until
        return self.due if self.phase is Phase.SCHEDULED else None


class QueueState(Struct, array_like=True, frozen=True):
    """A queue: its URLs by phase, and how many may be done (0: no limit)."""

    leased: int = 0
    scheduled: int = 0
    done: int = 0
    limit: int = 0


_ITEM = msgspec.msgpack.Decoder(Item)
_QUEUE = msgspec.msgpack.Decoder(QueueState)
_encode = msgspec.msgpack.encode

Name = tuple[str, bytes]


def items_prefix(host: str) -> bytes:
    return b"%b%b\0" % (_ITEMS, host.encode())


def item_key(name: Name) -> bytes:
    return items_prefix(name[0]) + name[1]


def time_key(time: float, name: Name) -> bytes:
    return b"%b%b%b\0%b" % (TIMES, _time_bytes(time), name[0].encode(), name[1])


def _time_bytes(time: float) -> bytes:
    return int(time * 1000).to_bytes(8)


def split_time_key(key: bytes) -> tuple[float, Name]:
    """Return time, host and identity in a key of `time_key`."""
    return int.from_bytes(key[2:10]) / 1000, (
        key[10 : -KEY_SIZE - 1].decode(),
        key[-KEY_SIZE:],
    )


def state_key(host: str) -> bytes:
    return QUEUES + host.encode()


def decode_item(value: bytes) -> Item:
    return _ITEM.decode(value)


class QueueLedger:
    """The items and queues of a store, and the changes that `write` writes together.

    ``totals`` is the sum over all queues, ``count`` is how many there are. ``leaving`` are the
    queues that are being deleted, which take nothing and give nothing.
    """

    def __init__(self, store: Store):
        self._store = store
        self._items: dict[Name, Item | None] = {}
        self._queues: dict[str, QueueState | None] = {}
        self._times: dict[bytes, bool] = {}
        # No time before this one is on disk: a search that begins earlier would walk over all that
        # were removed.
        self._next_time = 0.0
        self.count = leased = scheduled = done = 0
        for _, queue in self.queues():
            self.count += 1
            leased += queue.leased
            scheduled += queue.scheduled
            done += queue.done
        self.totals = QueueState(leased, scheduled, done)
        self.leaving = {key[len(_LEAVING) :].decode() for key in store.keys(_LEAVING)}
        self.state = read_state(store)

    # --- reading ---

    def item(self, name: Name) -> Item | None:
        if name in self._items:
            return self._items[name]
        saved = self._store.get(item_key(name))
        return None if saved is None else _ITEM.decode(saved)

    def known_queue(self, host: str) -> QueueState | None:
        """Return a queue; None if there is none of this name."""
        if host in self._queues:
            return self._queues[host]
        saved = self._store.get(state_key(host))
        return None if saved is None else _QUEUE.decode(saved)

    def queue(self, host: str) -> QueueState:
        """Return a queue, which is new if there is none of this name."""
        return self.known_queue(host) or QueueState()

    def due(self, now: float) -> Iterator[tuple[Name, bytes]]:
        """Yield host and identity of what is due by ``now``, the first one first, with its key.

        Only what is written is seen.
        """
        if now < self._next_time:
            return
        reached, self._next_time = self._next_time, inf
        try:
            for key in self._store.keys(TIMES, TIMES + _time_bytes(reached)):
                reached, name = split_time_key(key)
                if reached > now:
                    return
                yield name, key
            reached = inf
        finally:
            self._next_time = min(self._next_time, reached)

    def queues(self, after: str = "") -> Iterator[tuple[str, QueueState]]:
        """Yield all queues by name, or those behind one."""
        for key, value in self._store.items(QUEUES, state_key(after) if after else b""):
            yield key[len(QUEUES) :].decode(), _QUEUE.decode(value)

    # --- changing ---

    def put(self, name: Name, item: Item | None) -> None:
        """Replace an item, or remove it with None, and count it in its queue."""
        before = self.item(name)
        self._items[name] = item
        for each, is_there in ((before, False), (item, True)):
            if each is not None and each.time is not None:
                self._times[time_key(each.time, name)] = is_there
                if is_there:
                    self._next_time = min(self._next_time, each.time)
        leased, scheduled, done = (
            (item is not None and item.phase is phase)
            - (before is not None and before.phase is phase)
            for phase in (Phase.LEASED, Phase.SCHEDULED, Phase.DONE)
        )
        queue = self.known_queue(name[0])
        if queue is not None and not (leased or scheduled or done):
            return
        queue = queue or QueueState()
        self.put_queue(
            name[0],
            msgspec.structs.replace(
                queue,
                leased=queue.leased + leased,
                scheduled=queue.scheduled + scheduled,
                done=queue.done + done,
            ),
        )

    def put_queue(self, host: str, queue: QueueState | None) -> None:
        """Replace a queue, or remove it with None."""
        before = self.known_queue(host)
        self._queues[host] = queue
        self.count += (queue is not None) - (before is not None)
        old, new, sums = before or QueueState(), queue or QueueState(), self.totals
        self.totals = QueueState(
            sums.leased + new.leased - old.leased,
            sums.scheduled + new.scheduled - old.scheduled,
            sums.done + new.done - old.done,
        )

    def drop_time(self, key: bytes) -> None:
        """Remove a key of `due` whose item says otherwise."""
        self._times[key] = False

    def put_state(self, state: CrawlState) -> None:
        """Replace the state of the crawl, immediately."""
        self.state = state
        put_state(self._store, state)

    def begin_leaving(self, host: str) -> None:
        """Begin to delete a queue: a restart goes on with it, until `end_leaving`."""
        self.leaving.add(host)
        batch = self._store.batch(sync=True)
        batch.put(_LEAVING + host.encode(), b"")
        batch.write()

    def end_leaving(self, host: str) -> None:
        """Remove a queue of which nothing is left."""
        self.put_queue(host, None)
        batch = self._store.batch(sync=True)
        batch.delete(_LEAVING + host.encode())
        self.add_to(batch)
        batch.write()
        self.leaving.discard(host)

    def add_to(self, batch: Batch) -> None:
        """Put all changes into a batch, which is written next."""
        for name, item in self._items.items():
            if item is None:
                batch.delete(item_key(name))
            else:
                batch.put(item_key(name), _encode(item))
        for host, queue in self._queues.items():
            if queue is None:
                batch.delete(state_key(host))
            else:
                batch.put(state_key(host), _encode(queue))
        for key, is_there in self._times.items():
            if is_there:
                batch.put(key, b"")
            else:
                batch.delete(key)
        self._items.clear()
        self._queues.clear()
        self._times.clear()

    def write(self, *, sync: bool = False) -> None:
        """Write all changes."""
        if self._items or self._queues or self._times:
            batch = self._store.batch(sync=sync)
            self.add_to(batch)
            batch.write()
