"""The hosts in memory, and their records on disk."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import (
    AWAITING_ROBOTS,
    CALLED,
    DEFERRED,
    IN_FLIGHT,
    SCHEDULED,
    SEALED,
    WAITING,
    Health,
    Host,
)
from krowlspider.frontier.hosts.host_record import decode_host, encode_host
from krowlspider.frontier.hosts.positions import HostPositions
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import whole_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from krowlspider.frontier.hosts.tally import Tally
    from krowlspider.frontier.schedule.due import DueHeap
    from krowlspider.frontier.store.store import Batch, Store
    from krowlspider.politeness.delay import DelayPolicy

# Hosts that are read together when one of them is due, each with the head of its queue.
_TOGETHER = 16
# The most URLs of a host whose queue head is searched from its record onwards. The search passes
# over each key that was removed or rewritten in between.
_NEAR = 64
# States in which memory holds more of a host than its record.
_PINNING = (WAITING, CALLED, IN_FLIGHT, AWAITING_ROBOTS, SEALED)


class HostCache:
    """The hosts in memory. All others are read from their records.

    ``most`` is how many are kept besides the pinned ones. The last request of a host may have ended
    later than its record says: a host that is read waits as if that request had ended at
    ``unsure``, in seconds of the job clock.
    """

    def __init__(
        self,
        store: Store,
        tally: Tally,
        due: DueHeap,
        rule: DelayPolicy,
        *,
        most: int,
        unsure: float,
        now: Callable[[], float],
    ):
        self.hosts: dict[str, Host] = {}
        self.positions = HostPositions(store)
        self._store = store
        self._tally = tally
        self._due = due
        self._rule = rule
        self._most = most
        self._unsure = unsure
        # From then on, every host has surely waited.
        self._sure = unsure + rule.longest
        self._now = now
        # Hosts in memory at which the next eviction begins.
        self._evict_at = most
        # Hosts whose record the next commit writes, by name.
        self._changed: dict[str, Host] = {}

    def get(self, name: str) -> Host:
        """Return a host: from memory, from its record on disk, or new."""
        host = self.hosts.get(name)
        if host is None:
            self.read((name,))
            host = self.hosts[name]
        return host

    def read(self, names: Iterable[str]) -> None:
        """Read those hosts into memory that are not in it."""
        if missing := sorted(name for name in names if name not in self.hosts):
            records = self._store.read(map(schema.host_key, missing))
            for name, saved in zip(missing, records, strict=True):
                self._remember(name, saved)

    def read_due(self, name: str) -> Host:
        """Read a due host into memory, with some that are due soon, and return it.

        The head of each host's queue is read too: it is in the same place on the disk.
        """
        names = {name, *self._due.soon(_TOGETHER)}
        with self._store.reader() as reader:
            for each in sorted(names.difference(self.hosts)):
                key = schema.host_key(each)
                host = self._remember(each, reader.read(key))
                queue = host.queue
                if host.state is SCHEDULED and (head := queue.head) is not None:
                    # Older records and removed entries lie between the two until LevelDB merges
                    # them away.
                    near = queue.queued + queue.done + queue.dropped <= _NEAR
                    key = schema.queue_key(key, head[0] >> 8, head[1])
                    value = reader.read_next(key) if near else reader.read(key)
                    queue.ahead = [(*head, value)]
        return self.hosts[name]

    def _remember(self, name: str, saved: bytes | None) -> Host:
        if saved is None:
            host = Host(name, due=self._now())
        else:
            host = decode_host(name, saved)
            if self._now() < self._sure:
                self._wait_surely(host)
        self.hosts[name] = host
        return host

    def _wait_surely(self, host: Host) -> None:
        """Make a host that was read wait as if its last request had ended at ``unsure``.

        The record of a deferred host is written when it is deferred, so it is right.
        """
        earliest = whole_microseconds(self._unsure + self._rule.of(host.name).delay(host.rate))
        if earliest > host.due and host.state is not DEFERRED:
            host.due = earliest
            host.ready = max(host.ready, earliest)
            if host.state is SCHEDULED:
                self._due.push(earliest, host.name)

    def evict(self) -> None:
        """When too many hosts are in memory, remove the oldest tenth from it, except pinned ones.

        Never call this while a batch is open: a host on disk equals the host in memory only once
        its batch is written.
        """
        if len(self.hosts) < self._evict_at:
            return
        before = len(self.hosts)
        oldest = list(islice(self.hosts.values(), self._most // 10 + 1))
        for host in oldest:
            del self.hosts[host.name]
            if self._is_pinned(host):
                # Move it to the end: it is looked at again after all others.
                self.hosts[host.name] = host
        # Where most hosts are pinned, do not try again for each new host.
        few_left = len(self.hosts) > before - len(oldest) // 2
        self._evict_at = max(self._most, few_left * (len(self.hosts) + self._most // 20))

    def _is_pinned(self, host: Host) -> bool:
        """Return whether a host must stay in memory, which holds more of it than its record."""
        return bool(
            host.name in self._changed
            or host.queue.leased
            or host.robots.fetches
            or host.state in _PINNING
            or (host.session and host.state is SCHEDULED)
        )

    def note(self, host: Host) -> None:
        """Have the next commit write a host's record: memory is newer than it."""
        self._changed[host.name] = host

    def record(self, hosts: Collection[Host], batch: Batch) -> None:
        """Put the records of hosts and their places in the heap into the batch.

        Nothing that may fail comes between this and the write of the batch: the tally counts what
        is written.
        """
        for host in hosts:
            if host.queue.pending and host.health is not Health.DEFERRED:
                self._due.put_place(host, batch)
            else:
                self._due.delete_place(host, batch)
            before, host.record = host.record, encode_host(host)
            batch.put(schema.host_key(host.name), host.record)
            if not before:
                self.positions.put(host.name, batch)
            self._tally.replace(before, host.record)
            self._changed.pop(host.name, None)
        if hosts:
            self._tally.put(batch)

    def record_changed(self, batch: Batch) -> None:
        """Put the records of all hosts into the batch that have changed since their last one."""
        self.record(list(self._changed.values()), batch)

    def record_now(self, host: Host, batch: Batch | None = None) -> None:
        """Write the record of a host, together with what is in ``batch``."""
        if batch is None:
            batch = self._store.batch()
        self.record([host], batch)
        batch.write()

    def record_if_changed(self, host: Host) -> None:
        """Write the record of a host, if memory is newer than it."""
        if host.name in self._changed:
            self.record_now(host)

    def erase(self, host: Host, batch: Batch) -> None:
        """Put the removal of a host's record and of its place in the heap into the batch."""
        self._due.delete_place(host, batch)
        batch.delete(schema.host_key(host.name))
        self.positions.delete(host.name, batch)
        self._tally.replace(host.record, b"")
        self._tally.put(batch)
        host.record = b""

    def remove(self, host: Host) -> None:
        """Remove a host from memory. If it comes back, it is read again, or new."""
        self._changed.pop(host.name, None)
        del self.hosts[host.name]
