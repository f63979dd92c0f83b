"""Whose fault it is when many hosts fail at once: theirs, or that of our own network or resolver.

A host is not to be punished for what happens on our side. One failure does not tell the two apart; many hosts
failing while none answers does. Then there is an outage: requests pause, but for a probe now and then, until
something answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

# Distinct hosts that must fail, with not one answer between. Lists of old seeds have three dead hosts of five:
# twenty in a row by chance are rare then (0.6^20 is 4 in 100,000), and harmless, as the next answer ends it.
HOSTS = 20
# The same for what a host can hardly cause: a few might, by routes withdrawn at their own end.
HOSTS_CERTAIN = 5
# Hosts noted at a time: those that were dead before prove nothing, and are forgiven with the others.
NOTED = 10 * HOSTS
# Seconds in which they must fail: as long as a fetch takes that fails slowest (DOWNLOAD_TIMEOUT), so that those
# under way when the network went count together.
WINDOW = 60.0
# Seconds between probes: an outage is noticed to be over within them, and a network that comes back is not flooded.
PROBE_EVERY = 5.0
# Seconds of an outage in which every host is forgiven: a router or resolver that restarts is back by then.
PATIENCE = 600.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something on our side that can fail, and the kinds of failure (``krowlspider/fetch/errors.py``) by which it
    shows.

    ``suspect``: what the host may have caused as well; ``certain``: what it can hardly have; ``sure``: what no host has
    to do with, so that one failure tells; ``refuted_by``: what only a host that was reached can cause, which is as good
    as an answer.
    """

    suspect: frozenset[str]
    certain: frozenset[str]
    sure: frozenset[str]
    refuted_by: frozenset[str] = frozenset()


# All that a request needs. Resets and early ends are neither evidence: a gateway that restarts sends them too.
NETWORK = Fault(
    suspect=frozenset(
        {
            "dns_timeout",
            "dns_servfail",
            "connect_timeout",
            "connect_failed",
            # Requests on the wire, or on a kept-alive connection, when the network goes.
            "first_byte_timeout",
            "total_timeout",
        }
    ),
    certain=frozenset({"dns_down", "network_down"}),
    sure=frozenset({"dns_down"}),
    refuted_by=frozenset({"connect_refused", "tls", "protocol", "too_large", "decode"}),
)
# The DNS alone, for its verdicts: hosts whose addresses are remembered go on answering, and would never ask it whether
# its outage is over, so this one must pause nothing. Success is an answer of the DNS (``ResolverStats.answered``).
RESOLVER = Fault(
    suspect=frozenset({"dns_timeout", "dns_servfail"}),
    certain=frozenset({"dns_down"}),
    sure=frozenset({"dns_down"}),
)


class State(Enum):
    UP = "up"
    OUTAGE = "outage"


class Verdict(Enum):
    """What a failure means for its host."""

    COUNT = "count"
    """Its own: count it against the host as always."""
    FORGIVE = "forgive"
    """Ours: no strike for the host, no try used up."""
    BEGIN = "begin"
    """An outage begins with it: forgive it, and those in ``struck``."""
    END = "end"
    """Its own, and the host was reached: the outage is over."""


@dataclass(slots=True, eq=False)
class _Failures:
    strikes: int
    last: float
    certain: bool
    fresh: bool


class OutageWatch:
    """Told how each request ended; says whether it was our fault, and when requests may go out.

    Times are monotonic seconds, never going back. Holds at most ``NOTED`` hosts, and as many in ``struck``.
    """

    def __init__(self, fault: Fault = NETWORK) -> None:
        self._fault = fault
        # By the time of the last failure, since the last success.
        self._failed: dict[str, _Failures] = {}
        self._state = State.UP
        self.struck: dict[str, int] = {}
        """Hosts to the failures that were counted against them, wrongly, before the last outage was noticed."""
        self.since = 0.0
        """When the last outage began."""
        self.next_probe = 0.0
        """During an outage, when the next request may go out."""

    @property
    def state(self) -> State:
        return self._state

    def succeeded(self) -> bool:
        """A host answered, be it with an error of HTTP. Whether that ends an outage."""
        self._failed.clear()
        ended = self._state is State.OUTAGE
        self._state = State.UP
        return ended

    def failed(self, host: str, kind: str, now: float, *, fresh: bool = True) -> Verdict:
        """A request to ``host`` failed; ``fresh``: its last request did not fail. Hosts that are dead already prove
        nothing by being dead still.

        A crawl of which only dead hosts are left looks like an outage, and has to come to its end. So hosts are forgiven
        for ``PATIENCE`` s only, then they are struck, by one probe at a time. What is certainly our fault is forgiven
        for ever.
        """
        if kind in self._fault.refuted_by:
            return Verdict.END if self.succeeded() else Verdict.COUNT
        certain = kind in self._fault.certain
        if not certain and kind not in self._fault.suspect:
            return Verdict.COUNT
        if self._state is State.OUTAGE:
            patient = now < self.since + PATIENCE
            return Verdict.FORGIVE if certain or patient else Verdict.COUNT
        self._note(host, certain, now, fresh=fresh)
        return Verdict.BEGIN if self._begins(host, kind, now) else Verdict.COUNT

    def open(self, now: float) -> bool:
        """Whether a request may go out: any while there is no outage, else one probe each ``PROBE_EVERY`` s."""
        return self._state is State.UP or now >= self.next_probe

    def sent(self, now: float) -> None:
        """A request went out: during an outage it was the probe."""
        self.next_probe = now + PROBE_EVERY

    def __len__(self) -> int:
        return len(self._failed)

    def _note(self, host: str, certain: bool, now: float, *, fresh: bool) -> None:
        before = self._failed.pop(host, None)
        strikes = 1 if before is None else before.strikes + 1
        certain = certain or (before is not None and before.certain)
        fresh = fresh or (before is not None and before.fresh)
        self._failed[host] = _Failures(strikes, now, certain, fresh)
        while (oldest := next(iter(self._failed))) != host:
            if self._failed[oldest].last >= now - WINDOW and len(self._failed) <= NOTED:
                break
            del self._failed[oldest]

    def _begins(self, host: str, kind: str, now: float) -> bool:
        certain = sum(failures.certain for failures in self._failed.values())
        fresh = sum(failures.fresh for failures in self._failed.values())
        many = fresh >= HOSTS or certain >= HOSTS_CERTAIN
        if not many and kind not in self._fault.sure:
            return False
        self._state = State.OUTAGE
        self.since, self.next_probe = now, now + PROBE_EVERY
        # This one's last failure is forgiven by the verdict; the ones before it were counted.
        self._failed[host].strikes -= 1
        self.struck = {name: failures.strikes for name, failures in self._failed.items()}
        if not self.struck[host]:
            del self.struck[host]
        return True
