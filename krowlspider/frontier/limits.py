"""The caps of a frontier, in URLs, hosts and seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from krowlspider.urls.host import Ports

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
class Limits:
    """The caps of a frontier.

    - ``host_queue``, ``total``: URLs queued per host and in all, before the overflow.
    - ``domain_concurrency``: hosts of one domain in flight. ``address_concurrency``: hosts of one
      address in flight (0: no cap).
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
