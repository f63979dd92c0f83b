"""When an address may be asked again: one machine may serve thousands of hosts, each with a delay
of its own.

Kept in memory only. After a restart each host waits as its own record says, and an address that is
still in distress says so again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from krowlspider.politeness.pace import Pace, PaceRule

if TYPE_CHECKING:
    from krowlspider.frontier.hosts import Host

# Addresses remembered, the last ones that were asked: about 300 bytes each.
ADDRESSES = 65_536
# So many hosts that ask for rest, with none in between that answers, speak for their address: the
# limit of one site must not silence its neighbours.
_IN_A_ROW = 3
# Seconds of a Retry-After that hold for a whole address at most. Then one host there is asked,
# which may say so again.
_RETRY_AFTER_MAX = 60.0


@dataclass(slots=True, eq=False)
class Address:
    """``next`` is when it may be asked again, ``rests`` when its last backoff ends, in seconds of
    the job clock; ``refused`` names the hosts there that asked for rest since the last other
    answer."""

    pace: Pace = field(default_factory=Pace)
    next: float = 0.0
    rests: float = 0.0
    refused: tuple[str, ...] = ()


class Addresses:
    """Addresses by their share, with ``delay`` seconds from one request to the next at least; 0:
    they are asked at any time."""

    def __init__(self, delay: float):
        self.delay = delay
        self._rule = PaceRule(0.0, delay, delay, 0.0, _RETRY_AFTER_MAX)
        self._known: dict[str, Address] = {}

    def open_at(self, share: str) -> float:
        """When an address may be asked, in seconds of the job clock."""
        known = self._known.get(share)
        return 0.0 if known is None else known.next

    def asked(self, share: str, now: float) -> None:
        """A request goes to an address; to be told where there is a delay."""
        known = self._known.pop(share, None)
        if known is None:
            known = Address()
            if len(self._known) >= ADDRESSES:
                del self._known[next(iter(self._known))]
        self._known[share] = known
        known.next = max(known.next, now + self._rule.delay(known.pace))

    def answered(self, host: Host, latency: float) -> None:
        """A host gave an ordinary answer."""
        if (known := self._known.get(host.address)) is not None:
            known.refused = ()
            if known.pace.distress:
                self._rule.after_answer(known.pace, latency)

    def refused(self, host: Host, retry_after: float | None, now: float, chance: float) -> float:
        """A host asked for rest, as of `PaceRule.after_distress`: the seconds for which its address
        backs off now, 0 where it does not. What was on the way before the last backoff began says
        nothing new."""
        known = self._known.get(host.address)
        if known is None or now < known.rests:
            return 0.0
        if host.name not in known.refused:
            known.refused = (*known.refused, host.name)[-_IN_A_ROW:]
        if len(known.refused) < _IN_A_ROW:
            return 0.0
        wait = self._rule.after_distress(known.pace, 0.0, retry_after, chance)
        known.rests = now + wait
        known.next = max(known.next, known.rests)
        return wait
