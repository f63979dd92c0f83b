"""URLs that clients have: given out in batches by host, and taken back when a lease ends.

A host has one batch out at a time. The next one comes its delay after the last URL of the batch was
acknowledged, or after its lease has ended. A lease is on disk before its URL is sent.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.entry_queues import Candidate, Lease
from krowlspider.frontier.hosts.host import DEFERRED, IDLE, SCHEDULED, Host
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import whole_microseconds
from krowlspider.rpc.urlfrontier.records import Item, Name, Phase, QueueLedger, time_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from krowlspider.frontier.frontier import Frontier

# URLs of one queue and of one call, where the client asks for no limit or for more.
PER_QUEUE_MAX = 1000
PER_CALL_MAX = 10_000
# URLs of a crawl that clients may have at a time. Entries for Scrapy alone that are kept in memory.
LEASES_MAX = 100_000
ASIDE_MAX = 10_000
# Hosts that one call looks at, most of which may have nothing to send.
_LOOKS = 1000
# URLs whose time has come that one call looks at.
_DUE_MAX = 10_000
# Seconds until a queue that is held back is looked at again, unless what holds it ends.
_HELD = 3600.0
# Reasons of entries that are dropped: a client has reported the URL already, or deleted it.
_REPORTED, DELETED = "recrawled", "operator"


class Leases:
    """The leases of a frontier. ``key_of`` returns the identity of a URL, ``wall`` the time in
    epoch seconds."""

    def __init__(
        self,
        frontier: Frontier,
        ledger: QueueLedger,
        key_of: Callable[[str], bytes],
        wall: Callable[[], float],
    ):
        self._frontier = frontier
        self._ledger = ledger
        self._key_of = key_of
        self._wall = wall
        self._leases: dict[Name, Lease] = {}
        # URLs of each host that are out.
        self._out: Counter[str] = Counter()
        # Entries that are no plain URLs: they stay for `scrapy crawl`.
        self._aside: list[Lease] = []

    # --- giving out ---

    def take(
        self, queues: int, per_queue: int, seconds: float, name: str | None = None
    ) -> list[tuple[str, Item]]:
        """Lease URLs that are due for ``seconds``, and return them with their hosts.

        They are of ``queues`` hosts, ``per_queue`` of each, or of the host ``name`` only. With 0,
        there is no limit but that of this module.

        :raises StoreError: the store cannot be written; no URL is leased
        """
        self.advance()
        per_queue = min(per_queue or PER_QUEUE_MAX, PER_QUEUE_MAX)
        room = min(PER_CALL_MAX, LEASES_MAX - len(self._leases))
        until = self._wall() + seconds
        found: list[tuple[str, Item]] = []
        hosts = self._hosts(name)
        sent = 0
        while room > len(found) and (not queues or sent < queues):
            if (host := next(hosts, None)) is None:
                break
            some = self._of_host(host, min(per_queue, room - len(found)), until)
            sent += bool(some)
            found += [(host.name, item) for item in some]
            if not self._out[host.name]:
                del self._out[host.name]
                self._frontier.schedule.give_back(host)
        self._ledger.write(sync=True)
        return found

    def _hosts(self, name: str | None) -> Iterator[Host]:
        """Yield hosts that may be sent now, each in flight."""
        schedule = self._frontier.schedule
        for _ in range(1 if name else _LOOKS):
            host = schedule.pop_named(name) if name else schedule.pop()
            if host is None:
                return
            queue = self._ledger.queue(host.name)
            if queue.leased or (queue.limit and queue.done >= queue.limit):
                # Clients have its URLs since before the last start, or its limit is reached.
                schedule.give_back(host, _HELD)
            else:
                yield host

    def _of_host(self, host: Host, most: int, until: float) -> list[Item]:
        """Lease the next URLs of a host in flight."""
        found: list[Item] = []
        queues = self._frontier.queues
        while len(found) < most and (lease := queues.pop(host)) is not None:
            if not lease.entry.is_plain:
                if len(self._aside) >= ASIDE_MAX:
                    queues.unpop(lease)
                    break
                # It stays leased in memory, and is queued again at the next start.
                self._aside.append(lease)
                continue
            item = self._lease(host, lease, until)
            if item is not None:
                found.append(item)
        return found

    def _lease(self, host: Host, lease: Lease, until: float) -> Item | None:
        """Lease an entry that was popped; return None if it is not sent."""
        url = lease.entry.url
        name = host.name, self._key_of(url)
        item = self._ledger.item(name)
        if item is None or item.phase is Phase.PURGED:
            # It was queued by `scrapy crawl`, or by an import.
            now = self._wall()
            item = Item(url, Phase.QUEUED, now, now)
        elif not self._is_of(item, lease):
            self._frontier.acknowledge(lease, _REPORTED)
            return None
        self._leases[name] = lease
        self._out[name[0]] += 1
        item = replace(
            item,
            phase=Phase.LEASED,
            until=until,
            priority=lease.priority,
            sequence=lease.sequence,
        )
        self._ledger.put(name, item)
        return item

    def _is_of(self, item: Item, lease: Lease) -> bool:
        """Return whether an entry is the one of an item. If `scrapy crawl` has moved that, it is
        this one."""
        if item.phase not in (Phase.QUEUED, Phase.LEASED):
            return False
        place = item.priority, item.sequence
        if place == (lease.priority, lease.sequence):
            return True
        return not self.is_queued(lease.host, item)

    def is_queued(self, host: Host, item: Item) -> bool:
        """Return whether the entry of an item is on disk."""
        key = schema.queue_key(schema.host_key(host.name), item.priority, item.sequence)
        value = self._frontier.store.get(key)
        return value is not None and entry_of(key, value).url == item.url

    # --- taking back ---

    def advance(self) -> None:
        """Queue the URLs again whose time has come, the first one first: those scheduled, and those
        whose lease has ended.

        :raises StoreError: the store cannot be written
        """
        now = self._wall()
        for number, (name, key) in enumerate(self._ledger.due(now)):
            if number >= _DUE_MAX:
                break
            item = self._ledger.item(name)
            is_going = name[0] in self._ledger.leaving
            if is_going or item is None or item.time is None or time_key(item.time, name) != key:
                self._ledger.drop_time(key)
            elif item.phase is Phase.SCHEDULED:
                self._queue_again(name, item)
            else:
                self._end(name, item)
        self._ledger.write()

    def _queue_again(self, name: Name, item: Item) -> None:
        frontier, batch = self._frontier, self._frontier.store.batch()
        host = frontier.schedule.cache.get(name[0])
        sequence = host.queue.level(0).tail
        frontier.queues.append(host, [Candidate(name[0], None, Entry(item.url, 1))], batch)
        self._ledger.put(name, replace(item, phase=Phase.QUEUED, priority=0, sequence=sequence))
        self._ledger.add_to(batch)
        frontier.schedule.cache.record_now(host, batch)

    def _end(self, name: Name, item: Item) -> None:
        """End a lease whose time is over: the URL goes behind the others of its host."""
        frontier, batch = self._frontier, self._frontier.store.batch()
        host = frontier.schedule.cache.get(name[0])
        lease = self._leases.pop(name, None)
        item = replace(item, phase=Phase.QUEUED, until=0.0)
        if lease is not None:
            entry, lane = lease.entry, 0
            entry.due = 0.0
            sequence = host.queue.level(lease.priority, lane).tail
            frontier.queues.put_back(lease, entry, batch)
            item = replace(item, priority=lease.priority, sequence=sequence)
        self._ledger.put(name, item)
        self._ledger.add_to(batch)
        frontier.schedule.cache.record_now(host, batch)
        self._left(host, lease)

    def done(self, name: Name, item: Item, dropped: str | None = None) -> None:
        """Remove the entry of a queued or leased item, of which a client has reported, or which is
        dropped for a reason. The ledger says already what becomes of it; the next commit removes
        the entry of a lease."""
        frontier = self._frontier
        host = frontier.schedule.cache.get(name[0])
        if (lease := self._leases.pop(name, None)) is not None:
            frontier.acknowledge(lease, dropped)
        elif self.is_queued(host, item):
            batch = frontier.store.batch()
            key = schema.queue_key(schema.host_key(host.name), item.priority, item.sequence)
            batch.delete(key)
            frontier.queues.count_removed(host, 1)
            host.queue.queued -= 1
            if host.state is DEFERRED:
                frontier.schedule.transitions.deferred -= 1
            # As a commit would count it.
            frontier.counters["done" if dropped is None else f"dropped/{dropped}"] += 1
            host.queue.done += dropped is None
            host.queue.dropped += dropped is not None
            self._ledger.add_to(batch)
            frontier.schedule.cache.record_now(host, batch)
        if item.phase is Phase.LEASED:
            self._left(host, lease)

    def _left(self, host: Host, lease: Lease | None) -> None:
        """Count a URL of a host as no longer out; after the last one, the host waits its delay.
        Without a ``lease`` in memory, it is out since before the last start."""
        if lease is None:
            if not self._ledger.queue(host.name).leased:
                self.let_go_on(host)
            return
        self._out[host.name] -= 1
        if not self._out[host.name]:
            del self._out[host.name]
            rule = self._frontier.schedule.rule
            self._frontier.schedule.release(host, rule.of(host.name).delay(host.rate))

    def let_go_on(self, host: Host) -> None:
        """Make a host due after its delay: its old leases have ended, or its limit has changed."""
        schedule = self._frontier.schedule
        if host.state not in (SCHEDULED, IDLE) or host.is_put_off:
            return
        wait = schedule.rule.of(host.name).delay(host.rate)
        host.due = host.ready = whole_microseconds(schedule.now() + wait)
        schedule.due_changed(host)
        schedule.cache.record_now(host)

    def drop_host(self, host: Host) -> None:
        """End all leases of a host, whose URLs are about to be removed."""
        for name in [each for each in self._leases if each[0] == host.name]:
            self._frontier.acknowledge(self._leases.pop(name), DELETED)
        for lease in [each for each in self._aside if each.host is host]:
            self._aside.remove(lease)
            self._frontier.acknowledge(lease, DELETED)
        if self._out.pop(host.name, 0):
            self._frontier.schedule.release(host, 0.0)
