"""The caps of a frontier, in URLs, hosts and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from krowlspider.frontier.hosts.due import WINDOW
from krowlspider.frontier.hosts.sessions import NO_SESSIONS, SessionLimits
from krowlspider.urls.ports import Ports

# Hosts kept in memory besides the pinned ones, about 1 kB each. Fewer cost more reads from disk,
# more cost the garbage collector more time.
HOSTS_IN_MEMORY = 10_000
# Hosts that wait for room, all shares together: in memory, and by name only in the lines. More wait
# on disk, each with a due time of its own: a domain may have hosts without end.
BLOCKED_IN_MEMORY = 1000
IN_LINE = 100_000
_NO_PORTS = Ports(())


@dataclass(frozen=True, slots=True)
class Limits:
    """The caps of the frontier and of its memory.

    - ``host_queue``: URLs queued per host. ``total``: URLs queued in all.
    - ``domain_concurrency``: hosts of one domain in flight. ``address_concurrency``: hosts of one
      address in flight (0: no cap).
    - ``address_delay``: seconds between two requests to an address.
    - ``slots``: requests in flight in all (0: not known).
    - ``domain_budget``: URLs of one domain ever (0: no cap). ``domain_share``: the part of
      ``total`` that one domain may have queued (0: no cap).
    - ``outbox``: URLs in the outbox (0: no cap).
    - ``hosts_in_memory``: hosts kept in memory besides the pinned ones. ``window``: places of the
      heap read at a time.
    - ``blocked``: hosts kept in memory that wait for room. ``in_line``: names in line for room.
    - ``sessions``: the limits of `Sessions`. ``ports``: the ports that `LinkedPorts` admits.
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
    hosts_in_memory: int = HOSTS_IN_MEMORY
    window: int = WINDOW
    blocked: int = BLOCKED_IN_MEMORY
    in_line: int = IN_LINE
    sessions: SessionLimits = NO_SESSIONS
    ports: Ports = _NO_PORTS
