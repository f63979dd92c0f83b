"""Decide whether failures of many hosts are theirs, or an outage of our network or resolver.

A host is not blamed for a failure on our side. One failure does not show the cause. Many failures
without one answer do, if the hosts answered before and share neither domain nor network. Then an
outage begins: requests pause, except for a probe now and then, until a host answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, ip_address, ip_network
from math import inf

# Domains, and as many address blocks, that must fail without an answer between. Chance hardly does
# it with three dead hosts of five, and feigning it takes as many networks.
HOSTS = 20
# Hosts that must fail in a way that a host can hardly cause.
HOSTS_CERTAIN = 5
# Hosts noted at a time. Hosts whose failures prove nothing are noted too, to be forgiven.
NOTED = 50 * HOSTS
# Seconds in which they must fail: the longest a fetch takes to fail (DOWNLOAD_TIMEOUT). So all
# requests in flight when the network fails count together.
WINDOW = 60.0
# Seconds without any answer before an outage can begin: requests that one owner's hosts leave
# unanswered time out together.
QUIET = 8.0
# Prefixes that one owner holds: the smallest BGP announcement, and one site's share of IPv6.
_BLOCK_V4, _BLOCK_V6 = 24, 48
# Seconds between probes. They bound how late the end of an outage is noticed, and keep a network
# that comes back from being flooded.
PROBE_EVERY = 5.0
# Seconds of an outage in which every host is forgiven: a router or resolver restarts in less. After
# as many without a probe of a host that answered before, the caller gives up.
PATIENCE = 600.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A part of our side that can fail, and the failure kinds that show it.

    The kinds are those of ``krowlspider/fetch/errors.py``. ``suspect``: the host may also be the
    cause. ``certain``: a host is hardly the cause. ``sure``: no host is the cause, so one failure
    begins an outage. ``refuted_by``: only a host that was reached can cause it, so it counts as an
    answer. ``quiet``: seconds since the last answer before suspect failures can begin an outage.
    """

    suspect: frozenset[str]
    certain: frozenset[str]
    sure: frozenset[str]
    refuted_by: frozenset[str] = frozenset()
    quiet: float = 0.0


# Failures of a request already sent. They are evidence only for a host that answered before.
SILENCE = frozenset({"first_byte_timeout", "total_timeout"})
# The whole network. Resets and early ends are no evidence either way: a gateway that restarts sends
# them too.
NETWORK = Fault(
    suspect=frozenset(
        {
            "dns_timeout",
            "dns_servfail",
            "connect_timeout",
            "connect_failed",
            # Requests sent, also on a kept-alive connection, when the network fails.
            *SILENCE,
        }
    ),
    certain=frozenset({"dns_down", "network_down"}),
    sure=frozenset({"dns_down"}),
    refuted_by=frozenset({"connect_refused", "tls", "protocol", "too_large", "decode"}),
    quiet=QUIET,
)
# The DNS alone. Its outage pauses nothing: hosts with cached addresses still answer and never ask
# the DNS. Success is an answer of the DNS (``ResolverStats.answered``).
RESOLVER = Fault(
    suspect=frozenset({"dns_timeout", "dns_servfail"}),
    certain=frozenset({"dns_down"}),
    sure=frozenset({"dns_down"}),
)


class State(Enum):
    """Whether an outage is in force."""

    UP = "up"
    OUTAGE = "outage"


class Verdict(Enum):
    """How a failure counts for its host."""

    COUNT = "count"
    """The host's failure: count it against the host."""
    FORGIVE = "forgive"
    """Our failure: it is no strike for the host and uses up no try."""
    BEGIN = "begin"
    """An outage begins: forgive this failure, and those in ``struck``."""
    END = "end"
    """The host's failure, but the host was reached: the outage is over."""


@dataclass(slots=True, eq=False)
class _Failures:
    strikes: int
    last: float
    certain: bool


class OutageWatch:
    """Decide from the result of each request whose fault it was and when requests may go out.

    Times are monotonic seconds and never go back. At most ``NOTED`` hosts are held, and as many in
    ``struck``.
    """

    def __init__(self, fault: Fault = NETWORK) -> None:
        self._fault = fault
        # Failures since the last success, ordered by the time of a host's last failure.
        self._failed: dict[str, _Failures] = {}
        # Evidence of an outage: for each address block, the time of its last failure and the
        # domain.
        self._evidence: dict[str, tuple[float, str]] = {}
        self._answered = -inf
        self._state = State.UP
        self.struck: dict[str, int] = {}
        """Failures by host that were wrongly counted before the last outage was noticed."""
        self.since = 0.0
        """The time at which the last outage began."""
        self.next_probe = 0.0
        """During an outage, the time at which the next request may go out."""

    @property
    def state(self) -> State:
        return self._state

    def succeeded(self, now: float) -> bool:
        """Record an answer of a host, HTTP errors included; return whether it ended an outage."""
        self._answered = now
        ended = self._state is State.OUTAGE
        self._begin_anew()
        return ended

    def give_up(self) -> None:
        """End the outage without an answer, because no host is left that could show its end."""
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
        """Record a failed request to ``host`` and return its verdict.

        ``tells``: the failure is evidence, because the host answered its last request. Hosts never
        reached, or already dead, prove nothing. ``domain`` is the registrable domain; empty means
        the host itself. ``block`` is the result of `block_of` for its address, empty when unknown.

        A crawl with only dead hosts left looks like an outage, and must still end. So suspect
        failures are forgiven for ``PATIENCE`` seconds only; then each probe that fails counts.
        Failures that are ``certain`` are always forgiven during an outage.
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
        """Return whether a request may go out.

        Without an outage any may; during one, a probe every ``PROBE_EVERY`` seconds.
        """
        return self._state is State.UP or now >= self.next_probe

    def sent(self, now: float) -> None:
        """Record that a request went out. During an outage it was the probe."""
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
        # The verdict forgives this host's last failure; only its earlier ones were counted.
        self._failed[host].strikes -= 1
        self.struck = {name: failures.strikes for name, failures in self._failed.items()}
        if not self.struck[host]:
            del self.struck[host]
        return True

    def _all_fail(self, now: float) -> bool:
        """Return whether hosts of many owners fail and none answers."""
        if len(self._evidence) < HOSTS or now < self._answered + self._fault.quiet:
            return False
        return len({domain for _, domain in self._evidence.values()}) >= HOSTS

    def _certain(self, kind: str) -> bool:
        """Return whether enough hosts fail in a way that they can hardly have caused."""
        if kind not in self._fault.certain:
            return False
        return sum(failures.certain for failures in self._failed.values()) >= HOSTS_CERTAIN


def block_of(address: str) -> str:
    """Return the block that an address shares with others of one owner: /24, or /48 for IPv6.

    Return an empty string for an address that is not public: an intranet's hosts share one block.
    """
    ip = ip_address(address)
    if not ip.is_global:
        return ""
    prefix = _BLOCK_V4 if isinstance(ip, IPv4Address) else _BLOCK_V6
    return str(ip_network((ip, prefix), strict=False))
