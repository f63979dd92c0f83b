"""Which hosts this frontier may fetch, and hosts that go to another frontier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import CALLED, HELD, SEALED, WAITING, Health, Host
from krowlspider.frontier.hosts.table import Event
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.schedule.cache import HostCache
    from krowlspider.frontier.schedule.deferral import Deferral
    from krowlspider.frontier.schedule.due import DueHeap
    from krowlspider.frontier.schedule.transitions import Transitions
    from krowlspider.frontier.shares.shares import Shares


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
                self._transitions.move(host, Event.RING_CHANGED)
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
        self._transitions.move(host, Event.SEAL)
        if is_called:
            calls.pass_on(host, called)
        return host

    def unseal(self, host: Host) -> None:
        """Keep a sealed host, and schedule it again."""
        if host.health is Health.DEFERRED:
            self._transitions.move(host, Event.IS_DEFERRED)
            self._deferral.schedule(host)
            return
        self._transitions.move(host, host.after_change())
        if host.queue.queued:
            self._cache.record_now(host)
