"""Whose fault it is when many hosts fail at once: theirs, or that of our own network or resolver.

A host is not to be punished for what happens on our side. One failure does not tell the two apart;
many hosts failing while none answers does, if they answered before and have nothing in common. Then
there is an outage: requests pause, but for a probe now and then, until something answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, ip_address, ip_network
from math import inf

# Registrable domains, and as many address blocks, of which a host must fail, with not one answer
# between. Lists of old seeds have three dead hosts of five: twenty in a row by chance are rare then
# (0.6^20 is 4 in 100,000), and harmless, as the next answer ends it. Whoever wants to feign an
# outage needs as many networks.
HOSTS = 20
# The same for what a host can hardly cause.
HOSTS_CERTAIN = 5
# Hosts noted at a time: those whose failing proves nothing are forgiven with the others.
NOTED = 50 * HOSTS
# Seconds in which they must fail: as long as a fetch takes that fails slowest (DOWNLOAD_TIMEOUT), so that those
# under way when the network went count together.
WINDOW = 60.0
# Seconds without any answer that an outage takes: requests that one owner's hosts left hanging fail
# at one moment.
QUIET = 8.0
# Prefixes that one owner has: what the smallest announcements of BGP are, and one site's share of
# IPv6.
_BLOCK_V4, _BLOCK_V6 = 24, 48
# Seconds between probes: an outage is noticed to be over within them, and a network that comes back is not flooded.
PROBE_EVERY = 5.0
# Seconds of an outage in which every host is forgiven: a router or resolver that restarts is back
# by then. After as many in which no host could be asked that answered before, nothing speaks for an
# outage any more.
PATIENCE = 600.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something on our side that can fail, and the kinds of failure (``krowlspider/fetch/errors.py``) by which it
    shows.

    ``suspect``: what the host may have caused as well; ``certain``: what it can hardly have; ``sure``: what no host has
    to do with, so that one failure tells; ``refuted_by``: what only a host that was reached can cause, which is as good
    as an answer; ``quiet``: seconds without any answer that it takes, once there was one.
    """

    suspect: frozenset[str]
    certain: frozenset[str]
    sure: frozenset[str]
    refuted_by: frozenset[str] = frozenset()
    quiet: float = 0.0


# What befalls a request that was on its way: it shows something of a host only that answered
# before.
SILENCE = frozenset({"first_byte_timeout", "total_timeout"})
# All that a request needs. Resets and early ends are neither evidence: a gateway that restarts sends them too.
NETWORK = Fault(
    suspect=frozenset(
        {
            "dns_timeout",
            "dns_servfail",
            "connect_timeout",
            "connect_failed",
            # Requests on the wire, or on a kept-alive connection, when the network goes.
            *SILENCE,
        }
    ),
    certain=frozenset({"dns_down", "network_down"}),
    sure=frozenset({"dns_down"}),
    refuted_by=frozenset({"connect_refused", "tls", "protocol", "too_large", "decode"}),
    quiet=QUIET,
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


class OutageWatch:
    """Told how each request ended; says whether it was our fault, and when requests may go out.

    Times are monotonic seconds, never going back. Holds at most ``NOTED`` hosts, and as many in ``struck``.
    """

    def __init__(self, fault: Fault = NETWORK) -> None:
        self._fault = fault
        # By the time of the last failure, since the last success.
        self._failed: dict[str, _Failures] = {}
        # What speaks for an outage: of each address block when a host failed last, and of which
        # domain.
        self._evidence: dict[str, tuple[float, str]] = {}
        self._answered = -inf
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

    def succeeded(self, now: float) -> bool:
        """A host answered, be it with an error of HTTP. Whether that ends an outage."""
        self._answered = now
        ended = self._state is State.OUTAGE
        self._begin_anew()
        return ended

    def give_up(self) -> None:
        """Nothing is left that could tell whether an outage goes on: as if there were none."""
        self._begin_anew()

    def failed(
        self,
        host: str,
        kind: str,
        now: float,
        *,
        tells: bool = True,
        domain: str = "",
        block: str = "",
    ) -> Verdict:
        """A request to ``host`` failed. ``tells``: its failing is evidence, as it answered its last
        request; hosts never reached, or dead already, prove nothing. ``domain``: its registrable
        domain, empty where it has one of its own; ``block``: where it is, as of `block_of`, empty
        where that is not known.

        A crawl of which only dead hosts are left looks like an outage, and has to come to its end. So hosts are forgiven
        for ``PATIENCE`` s only, then they are struck, by one probe at a time. What is certainly our fault is forgiven
        for ever.
        """
        if kind in self._fault.refuted_by:
            return Verdict.END if self.succeeded(now) else Verdict.COUNT
        certain = kind in self._fault.certain
        if not certain and kind not in self._fault.suspect:
            return Verdict.COUNT
        if self._state is State.OUTAGE:
            patient = now < self.since + PATIENCE
            return Verdict.FORGIVE if certain or patient else Verdict.COUNT
        self._note(host, certain, now)
        if tells:
            self._testify(domain or host, block, now)
        return Verdict.BEGIN if self._begins(host, kind, now) else Verdict.COUNT

    def open(self, now: float) -> bool:
        """Whether a request may go out: any while there is no outage, else one probe each ``PROBE_EVERY`` s."""
        return self._state is State.UP or now >= self.next_probe

    def sent(self, now: float) -> None:
        """A request went out: during an outage it was the probe."""
        self.next_probe = now + PROBE_EVERY

    def __len__(self) -> int:
        return len(self._failed)

    def _begin_anew(self) -> None:
        self._failed.clear()
        self._evidence.clear()
        self._state = State.UP

    def _note(self, host: str, certain: bool, now: float) -> None:
        before = self._failed.pop(host, None)
        strikes = 1 if before is None else before.strikes + 1
        certain = certain or (before is not None and before.certain)
        self._failed[host] = _Failures(strikes, now, certain)
        while (oldest := next(iter(self._failed))) != host:
            if self._failed[oldest].last >= now - WINDOW and len(self._failed) <= NOTED:
                break
            del self._failed[oldest]

    def _testify(self, domain: str, block: str, now: float) -> None:
        place = block or domain
        self._evidence.pop(place, None)
        self._evidence[place] = (now, domain)
        while (oldest := next(iter(self._evidence))) != place:
            if self._evidence[oldest][0] >= now - WINDOW and len(self._evidence) <= NOTED:
                break
            del self._evidence[oldest]

    def _begins(self, host: str, kind: str, now: float) -> bool:
        if not (kind in self._fault.sure or self._all_fail(now) or self._certain(kind)):
            return False
        self._state = State.OUTAGE
        self.since, self.next_probe = now, now + PROBE_EVERY
        # This one's last failure is forgiven by the verdict; the ones before it were counted.
        self._failed[host].strikes -= 1
        self.struck = {name: failures.strikes for name, failures in self._failed.items()}
        if not self.struck[host]:
            del self.struck[host]
        return True

    def _all_fail(self, now: float) -> bool:
        """Whether hosts of many owners fail, and none answers."""
        if len(self._evidence) < HOSTS or now < self._answered + self._fault.quiet:
            return False
        return len({domain for _, domain in self._evidence.values()}) >= HOSTS

    def _certain(self, kind: str) -> bool:
        """Whether enough hosts fail in a way that they can hardly have caused."""
        if kind not in self._fault.certain:
            return False
        return sum(failures.certain for failures in self._failed.values()) >= HOSTS_CERTAIN


def block_of(address: str) -> str:
    """The block that an address shares with others of one owner: /24, or /48 of IPv6. Empty for one
    that is not public: an intranet's hosts are all in one."""
    ip = ip_address(address)
    if not ip.is_global:
        return ""
    prefix = _BLOCK_V4 if isinstance(ip, IPv4Address) else _BLOCK_V6
    return str(ip_network((ip, prefix), strict=False))
