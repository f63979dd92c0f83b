"""The delay of an address: when it may be asked again.

One machine may serve thousands of hosts, each with a delay of its own. All of this is in memory
only. After a restart each host waits as its own record demands, and an address that still throttles
answers so again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from krowlspider.politeness.delay import DelayPolicy, HostRate

if TYPE_CHECKING:
    from krowlspider.frontier.hosts.host import Host

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

    def asked(self, share: str, now: float) -> None:
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
