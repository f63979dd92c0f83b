"""The caps of a frontier: URLs, hosts and seconds, budgets and load of domains, linked ports,
addresses.

Which hosts with a port of their own links may lead to. With links and wildcard names, one page
could have every port of a stranger's machine asked. So of the ports in a range of KROWL_PORTS, each
host name has one that links lead to: the first that is found. It is kept on disk.

The delay of an address: when it may be asked again. One machine may serve thousands of hosts, each
with a delay of its own. All of this is in memory only. After a restart each host waits as its own
record demands, and an address that still throttles answers so again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host_record import queued_in
from krowlspider.frontier.store.schema import BUDGET, LOAD, host_key, linked_key
from krowlspider.frontier.store.store import Batch, Store, put, records
from krowlspider.politeness.delay import DelayPolicy, HostRate
from krowlspider.urls.canonical import Ports, domain_of, name_of, port_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.hosts.host import Host

# The part of ``total`` for one domain once half of the frontier is full: an endless site leaves
# room for others. A crawl of few domains raises KROWL_FRONTIER_MAX.
DOMAIN_SHARE = 0.1
# URLs that wait on disk for the nodes that own them, at 100 bytes each.
OUTBOX_MAX = 10_000_000

_NO_PORTS = Ports(())


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The limits of sessions. ``requests`` of one session at most (1: there are no sessions), with
    less than ``wait`` seconds from one to the next. No session continues while ``hosts`` hosts wait
    for their next request."""

    requests: int = 1
    wait: float = 0.0
    hosts: int = 0


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """What a frontier keeps in memory.

    - ``hosts``: hosts kept besides the pinned ones, about 1 kB each. Fewer cost more reads from
      disk, more cost the garbage collector more time.
    - ``window``: places of the heap that are read at a time, about 400 bytes each.
    - ``waiting``: hosts that wait for room. ``in_line``: names in line for room. More wait on disk,
      each with a due time of its own: a domain may have hosts without end.
    """

    hosts: int = 10_000
    window: int = 10_000
    waiting: int = 1000
    in_line: int = 100_000


@dataclass(frozen=True, slots=True)
class FrontierLimits:
    """The caps of a frontier.

    - ``host_queue``, ``total``: URLs queued per host and in all, before the overflow.
    - ``domain_concurrency``: hosts of one domain in flight. ``address_concurrency``: hosts of one
      address in flight (0: no cap).
    - ``concurrency_of``: returns another number for a domain, or None; None if no domain has one.
    - ``address_delay``: seconds between two requests to an address.
    - ``slots``: requests in flight in all (0: not known).
    - ``domain_budget``: URLs of one domain ever (0: no cap). ``domain_share``: the part of
      ``total`` that one domain may have queued, and once more in the overflow (0: no cap).
    - ``outbox``: URLs in the outbox (0: no cap).
    - ``ports``: the ports that `LinkedPorts` admits.
    - ``again_share``: the part of a host's pops for pages that are fetched again by the schedule,
      while it has other entries queued (0: there is no schedule).
    """

    host_queue: int
    total: int
    domain_concurrency: int
    address_concurrency: int = 0
    address_delay: float = 0.0
    slots: int = 0
    domain_budget: int = 0
    domain_share: float = 0.0
    outbox: int = 0
    again_share: float = 0.0
    ports: Ports = _NO_PORTS
    sessions: SessionLimits = field(default_factory=SessionLimits)
    memory: MemoryLimits = field(default_factory=MemoryLimits)
    concurrency_of: Callable[[str], int | None] | None = None


# Domains whose count is kept in memory, about 150 bytes each.
_DOMAINS_IN_MEMORY = 65_536


class DomainBudget:
    """The URLs that count against each domain, at most ``most``; with 0 the frontier counts none.

    A URL that is dropped counts no longer. The counts change in the batches that queue or drop, so
    they hold across restarts. A death between a drop's commit and the host's record leaves a count
    one too high.
    """

    def __init__(self, store: Store, most: int):
        self._store = store
        self.most = most
        self._counts: dict[str, int] = {}
        self._changed: set[str] = set()

    def take(self, domain: str) -> bool:
        """Count one more URL; return False, with nothing counted, when there is no room."""
        if self.count(domain) >= self.most:
            return False
        self.add(domain, 1)
        return True

    def add(self, domain: str, urls: int) -> None:
        """Count more URLs of a domain, or fewer for a negative number."""
        self._counts[domain] = max(0, self.count(domain) + urls)
        self._changed.add(domain)

    def count(self, domain: str) -> int:
        """Return how many URLs count against a domain."""
        if domain not in self._counts:
            saved = self._store.read((BUDGET + domain.encode(),))[0]
            self._counts[domain] = int.from_bytes(saved or b"", "big")
        return self._counts[domain]

    def end_batch(self, batch: Batch) -> None:
        """Put the changed counts into the batch."""
        for domain in self._changed:
            batch.put(BUDGET + domain.encode(), self._counts[domain].to_bytes(8, "big"))
        self._changed.clear()
        if len(self._counts) > _DOMAINS_IN_MEMORY:
            for domain in list(islice(self._counts, _DOMAINS_IN_MEMORY // 10)):
                del self._counts[domain]


# Domains counted in memory, about 150 bytes each. With more, the smaller half is forgotten and
# counts from 0 again.
DOMAINS_IN_MEMORY = 65_536
# A domain is kept on disk once it has this part of its share: one in so many.
_KEPT = 50
# The part of the frontier that fills up before any domain is limited.
_FREE = 0.5


class DomainLoad:
    """URLs that are queued or leased, by registrable domain.

    Once the frontier is half full, a domain that has ``share`` of its ``total`` places gets no
    more, only as much again in the overflow. Other domains' links in the overflow leave it half of
    that room at any time. A ``share`` of 0 is no limit, and nothing is counted.
    """

    def __init__(self, store: Store, share: float, total: int):
        self._most = int(share * total)
        # URLs in the whole frontier from which on a domain is limited.
        self.limited_from = int(_FREE * total) if self._most else total
        self._large_from = max(1, self._most // _KEPT)
        self._counts: dict[str, int] = {}
        # The counts on disk; None where they must be written anew.
        self._kept: dict[str, int] | None = None
        if self._most and (saved := store.get(LOAD)) is not None:
            self._counts = json.loads(saved)
            self._kept = dict(self._counts)
        elif self._most:
            self._count(store)
        self._large = {name for name, count in self._counts.items() if count >= self._large_from}

    def _count(self, store: Store) -> None:
        """Count from the host records: after a change by hand, the disk has no counts."""
        for host, record in records(store):
            if queued := queued_in(record)[0]:
                self._increase(domain_of(host), queued)

    def room(self, domain: str, shares: int) -> float:
        """Return how many more URLs a domain may have, up to so many times its share; inf for any
        number."""
        return max(0, shares * self._most - self._counts.get(domain, 0)) if self._most else inf

    def add(self, domain: str, urls: int) -> None:
        """Count more URLs of a domain."""
        if self._most and self._increase(domain, urls) >= self._large_from:
            self._large.add(domain)

    def _increase(self, domain: str, urls: int) -> int:
        counts = self._counts
        counts[domain] = count = counts.get(domain, 0) + urls
        if len(counts) > DOMAINS_IN_MEMORY:
            half = nlargest(DOMAINS_IN_MEMORY // 2, counts.items(), key=lambda item: item[1])
            self._counts = dict(half)
        return count

    def take(self, domain: str, urls: int = 1) -> None:
        """Subtract URLs of a domain that are no longer queued or leased."""
        if (count := self._counts.get(domain)) is not None:
            if count > urls:
                self._counts[domain] = count - urls
            else:
                del self._counts[domain]

    def put(self, batch: Batch) -> None:
        """Put the counts of large domains into the batch, where they have changed."""
        if not self._most:
            return
        counts = self._counts
        self._large = {name for name in self._large if counts.get(name, 0) >= self._large_from}
        kept = {name: counts[name] for name in self._large}
        if kept != self._kept:
            self._kept = kept
            batch.put(LOAD, json.dumps(kept).encode())


# Hosts kept in memory, about 150 bytes each: one that is not there takes two reads.
_HOSTS_IN_MEMORY = 65_536


class LinkedPorts:
    """The ports of hosts that links may lead to. A host that has a record came from a person, or a
    link led to it before."""

    def __init__(self, store: Store, ports: Ports):
        self._store = store
        self._ports = ports
        self.admitted: dict[str, bool] = {}
        """Some of the hosts that links may lead to; True for those whose port in a range was found
        by a link. Others are on disk: `admits` knows them all."""

    def admits(self, host: str) -> bool:
        """Return whether a link may lead to a host with a port. If so, and the port is in a range,
        links lead to no other such port of its host name from now on. This holds after a restart
        too."""
        if host in self.admitted:
            return True
        by_link = self._by_link(host)
        if by_link is None:
            return False
        self._remember(host, by_link=by_link)
        return True

    def is_linked(self, host: str) -> bool:
        """Return whether a link chose the port of this host, from a range."""
        if ":" not in host:
            return False
        by_link = self.admitted.get(host)
        if by_link is None:
            port = port_of(host)
            by_link = port is not None and self._noted(host) == port
            self._remember(host, by_link=by_link)
        return by_link

    def _by_link(self, host: str) -> bool | None:
        """Return the value for ``admitted``; None where no link may lead to the host. Write the
        port of a host name for which none is kept yet."""
        port = port_of(host)
        if port is None or self._ports.lists(port):
            return False
        noted = self._noted(host)
        if noted == port:
            return True
        if self._store.read((host_key(host),))[0] is not None:
            return False
        if noted is not None or not self._ports.spans(port):
            return None
        put(self._store, linked_key(name_of(host)), port.to_bytes(2, "big"))
        return True

    def _noted(self, host: str) -> int | None:
        """Return the port that is kept for the name of a host; None without one."""
        saved = self._store.read((linked_key(name_of(host)),))[0]
        return None if saved is None else int.from_bytes(saved, "big")

    def _remember(self, host: str, *, by_link: bool) -> None:
        self.admitted[host] = by_link
        if len(self.admitted) > _HOSTS_IN_MEMORY:
            for oldest in list(islice(self.admitted, _HOSTS_IN_MEMORY // 10)):
                del self.admitted[oldest]


# Addresses remembered, those asked last: bounds the memory, about 300 bytes each.
ADDRESSES = 65_536
# Throttling hosts in a row, with no other answer in between, for which their address backs off: the
# limit of one site must not silence its neighbours.
_IN_A_ROW = 3
# The most seconds of a Retry-After that hold for a whole address. Then one host there is asked,
# which may demand more.
_RETRY_AFTER_MAX = 60.0


@dataclass(slots=True, eq=False)
class Address:
    """The state of one address. ``next`` is when it may be asked again, ``rests`` when its last
    backoff ends, both in seconds of the job clock. ``refused`` names the hosts there that throttled
    since the last other answer."""

    rate: HostRate = field(default_factory=HostRate)
    next: float = 0.0
    rests: float = 0.0
    refused: tuple[str, ...] = ()


class Addresses:
    """Addresses by their share."""

    def __init__(self, delay: float):
        self._known: dict[str, Address] = {}
        self.set_delay(delay)

    def set_delay(self, delay: float) -> None:
        """Set the least seconds between two requests to an address; with 0, it may be asked at any
        time."""
        self.delay = delay
        self._rule = DelayPolicy(0.0, delay, delay, 0.0, _RETRY_AFTER_MAX)

    def open_at(self, share: str) -> float:
        """Return when an address may be asked, in seconds of the job clock; 0.0 for immediately."""
        known = self._known.get(share)
        return 0.0 if known is None else known.next

    def note_request(self, share: str, now: float) -> None:
        """Record that a request goes to an address at ``now``, in seconds of the job clock. Call
        this only where there is a delay."""
        known = self._known.pop(share, None)
        if known is None:
            known = Address()
            if len(self._known) >= ADDRESSES:
                del self._known[next(iter(self._known))]
        self._known[share] = known
        known.next = max(known.next, now + self._rule.delay(known.rate))

    def answered(self, host: Host, latency: float) -> None:
        """Record that a host gave an ordinary answer, after ``latency`` seconds."""
        if (known := self._known.get(host.shares.address)) is not None:
            known.refused = ()
            if known.rate.throttling:
                self._rule.after_answer(known.rate, latency)

    def refused(self, host: Host, retry_after: float | None, now: float, chance: float) -> float:
        """Record that a host throttled; ``retry_after`` and ``chance`` are as in
        `DelayPolicy.after_throttling`. Return for how many seconds its address backs off now; 0
        where it does not.

        Answers during a backoff are ignored: their requests were sent before it began.
        """
        known = self._known.get(host.shares.address)
        if known is None or now < known.rests:
            return 0.0
        if host.name not in known.refused:
            known.refused = (*known.refused, host.name)[-_IN_A_ROW:]
        if len(known.refused) < _IN_A_ROW:
            return 0.0
        wait = self._rule.after_throttling(known.rate, 0.0, retry_after, chance)
        known.rests = now + wait
        known.next = max(known.next, known.rests)
        return wait
