"""Servers that make no connection in time, of hosts that have answered.

The web servers at the ports 80 and 443 of a name are one host. If one of them drops all packets,
the host shall go on with the pages of the other one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from krowlspider.politeness.delay import ERRORS_BACKOFF, HostRate

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.politeness.delay import DelayPolicy

# Connect timeouts in a row from which a server rests. They are fewer than those by which its host
# is deferred, so that pages of the other server come before that.
SILENT = 3
# Servers that are remembered, about 400 bytes each. With more, the oldest is forgotten.
SERVERS_MAX = 10_000


class SilentServers:
    """Counts connect timeouts in a row by authority. From the third on, a server rests for 2, 4, 8
    ... minutes, and at last for a day at a time, as a host does after more errors.

    ``rule`` is the policy of delays, ``chance`` returns a random number from 0 to 1. Times are in
    seconds of one clock.
    """

    def __init__(self, rule: DelayPolicy, chance: Callable[[], float]):
        self._rule = rule
        self._chance = chance
        self._rates: OrderedDict[str, HostRate] = OrderedDict()
        self._until: dict[str, float] = {}

    @property
    def are_counted(self) -> bool:
        """Return whether any server has timed out since its last answer."""
        return bool(self._rates)

    def timed_out(self, authority: str, host: str, now: float) -> None:
        """Count a connect timeout of a server whose host has answered before."""
        rate = self._rates.pop(authority, None) or HostRate(errors=ERRORS_BACKOFF - SILENT)
        self._rates[authority] = rate
        rule = self._rule.of(host)
        wait = rule.after_error(rate, self._chance())
        if rule.resting(rate):
            self._until[authority] = now + wait
        if len(self._rates) > SERVERS_MAX:
            self.connected(next(iter(self._rates)))

    def connected(self, authority: str) -> None:
        """Forget the timeouts of a server."""
        if self._rates.pop(authority, None) is not None:
            self._until.pop(authority, None)

    def try_again(self, authority: str) -> None:
        """End the present rest of a server; its timeouts still count."""
        self._until.pop(authority, None)

    def forget(self) -> None:
        """Forget all timeouts: the network of this machine was their cause."""
        self._rates.clear()
        self._until.clear()

    def rest(self, authority: str, now: float) -> float:
        """Return the seconds for which nothing is to be sent to a server; 0 for none."""
        return max(0.0, self._until.get(authority, now) - now)
