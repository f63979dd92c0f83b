"""Which hosts this frontier may fetch, and deferred hosts, which wait for a later round.

Deferred hosts: out of the heap, with all their entries, until a later round. A round makes deferred
hosts due again, some with each commit. Each start begins with a round.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import CALLED, DEFERRED, HELD, SEALED, WAITING, Health, Host
from krowlspider.frontier.hosts.table import HostEvent
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import whole_microseconds
from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.schedule.cache import DueHeap, HostCache
    from krowlspider.frontier.schedule.transitions import Transitions
    from krowlspider.frontier.shares import Shares
    from krowlspider.frontier.store.store import Batch, Store
    from krowlspider.politeness.delay import DelayPolicy

# Seconds between two rounds.
ROUND = 3600.0
# Deferred hosts that one commit makes due at most: bounds the time that it takes.
_REVIVED = 1000


class Deferral:
    """Defers hosts, and revives them. ``now`` returns the job clock in seconds."""

    def __init__(
        self,
        store: Store,
        rule: DelayPolicy,
        *,
        cache: HostCache,
        due: DueHeap,
        transitions: Transitions,
        now: Callable[[], float],
    ):
        self._store = store
        self._rule = rule
        self._cache = cache
        self._due = due
        self._transitions = transitions
        self._now = now
        # The key up to which the present round has come; None between two rounds.
        self._round: bytes | None = schema.DEFERRED
        self._next_round = now() + ROUND

    @property
    def is_in_round(self) -> bool:
        """Return whether the present round has not come to its end."""
        return self._round is not None

    def defer(self, host: Host, wait: float = 0.0, batch: Batch | None = None) -> None:
        """Defer a host in flight until the next round, and for ``wait`` seconds at least. Where
        ``wait`` ends before the next round, the host is due at its end. Its record is written,
        together with what is in ``batch``."""
        host.set_health(Health.DEFERRED)
        self._transitions.move(host, HostEvent.DEFER)
        if wait:
            host.due = host.ready = whole_microseconds(self._now() + wait)
        else:
            host.ready = 0.0
        if batch is None:
            batch = self._store.batch()
        batch.put(schema.deferred_key(host.name), b"")
        self._cache.record_now(host, batch)
        if wait:
            self.schedule(host)
        elif host.robots.fetches:
            self._due.push(host.due, host.name)

    def schedule(self, host: Host) -> None:
        """Schedule a deferred host for its own time, if that comes within a round or the host has
        robots fetches. No crawl goes on only because of it."""
        if host.robots.fetches or host.due <= self._now() + ROUND:
            self._due.push(host.due, host.name)

    def revive(self, host: Host) -> None:
        """End the deferral of a host."""
        self._transitions.move(host, HostEvent.REVIVE)
        host.set_health(Health.BACKING_OFF)

    def forgive(self, name: str, errors: int) -> None:
        """Subtract errors that were counted against a host and were not its fault."""
        host = self._cache.get(name)
        was_parked = self._rule.parked(host.rate)
        host.rate.errors = max(0, host.rate.errors - errors)
        host.rate.has_no_name &= host.rate.errors > 0
        self._cache.note(host)
        if host.state is DEFERRED and was_parked:
            # The last of these errors parked it. Its last request may have ended just now.
            wait = self._rule.of(name).delay(host.rate)
            host.due = host.ready = whole_microseconds(self._now() + wait)
            self._due.push(host.due, name)

    def advance_round(self) -> None:
        """Begin or continue a round: make deferred hosts due again, a limited number at a time.
        Those whose own time has not come stay deferred."""
        if self._round is None:
            if self._now() < self._next_round:
                return
            self._round = schema.DEFERRED
            self._next_round = self._now() + ROUND
        keys = list(islice(self._store.keys(schema.DEFERRED, self._round), _REVIVED))
        self._round = keys[-1] if len(keys) == _REVIVED else None
        names = [key[1:].decode() for key in keys]
        self._cache.read(names)
        batch = self._store.batch()
        for key, name in zip(keys, names, strict=True):
            host = self._cache.hosts[name]
            if host.state is DEFERRED and host.due > self._now():
                self.schedule(host)
            elif host.state is not SEALED:
                batch.delete(key)
                if host.state is DEFERRED:
                    self.revive(host)
                    host.due = max(host.due, whole_microseconds(self._now()))
                    self._transitions.move(host, host.after_change())
                self._cache.record([host], batch)
        batch.write()


class HostBusyError(Exception):
    """The host cannot be sealed. It has a request in flight or unacknowledged pages, waits for
    another host, or is on its way to another frontier."""


class Ownership:
    """Holds the hosts of other frontiers, and seals hosts that are handed over.

    ``may_fetch`` returns whether a domain may be fetched here now; None if every domain may.
    """

    def __init__(
        self,
        may_fetch: Callable[[str], bool] | None,
        *,
        cache: HostCache,
        due: DueHeap,
        shares: Shares,
        transitions: Transitions,
        deferral: Deferral,
    ):
        self._may_fetch = may_fetch
        self._cache = cache
        self._due = due
        self._shares = shares
        self._transitions = transitions
        self._deferral = deferral

    def is_ours(self, name: str) -> bool:
        """Return whether a host may be fetched here, by its domain."""
        return self._may_fetch is None or self._may_fetch(domain_of(name))

    def ring_changed(self) -> None:
        """Schedule all held hosts again: `is_ours` may return something else now.

        Deferred hosts come with the next round.
        """
        hosts = self._cache.hosts
        # The other hosts in line are read from the disk again.
        self._shares.only(lambda name: name in hosts and hosts[name].state is WAITING)
        for host in hosts.values():
            if host.state is HELD:
                self._transitions.move(host, HostEvent.RING_CHANGED)
            if host.robots.fetches:
                # With nothing queued, the host has no place on disk.
                self._due.push(host.due, host.name)
        # Held hosts that have left memory are read again too.
        self._due.read_again()

    def seal(self, name: str) -> Host:
        """Seal a host and return it: none of its requests is sent until it is gone or unsealed. Its
        record on disk is up to date then. If room was made for it, another host is called.

        :raises HostBusyError: the host is busy, or sealed already; nothing has changed
        """
        host = self._cache.get(name)
        if host.is_busy or host.state is SEALED:
            raise HostBusyError(
                f"{name} is {host.state.value}, pages open: {len(host.queue.leased)}"
            )
        calls, is_called = self._transitions.calls, host.state is CALLED
        called = calls.take(host)
        self._cache.record_if_changed(host)
        self._transitions.move(host, HostEvent.SEAL)
        if is_called:
            calls.pass_on(host, called)
        return host

    def unseal(self, host: Host) -> None:
        """Keep a sealed host, and schedule it again."""
        if host.health is Health.DEFERRED:
            self._transitions.move(host, HostEvent.IS_DEFERRED)
            self._deferral.schedule(host)
            return
        self._transitions.move(host, host.after_change())
        if host.queue.queued:
            self._cache.record_now(host)
