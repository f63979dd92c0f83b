"""Decide whether failures of many hosts are theirs, or an outage of our network or resolver.

A failure on our side does not count against a host. One failure does not show the cause. Many
failures without one answer do, if the hosts answered before and share neither domain nor network.
Then an outage begins: requests pause, except for a probe now and then, until a host answers.
"""

from __future__ import annotations

from enum import Enum
from ipaddress import IPv4Address, ip_address, ip_network
from math import inf
from typing import NamedTuple

from msgspec import Struct

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
ANSWERLESS = 8.0
# Prefixes that one owner holds: the smallest BGP announcement, and one site's share of IPv6.
_BLOCK_V4, _BLOCK_V6 = 24, 48
# Seconds between probes. They bound how late the end of an outage is noticed, and keep a network
# that comes back from being flooded.
PROBE_EVERY = 5.0
# Seconds of an outage in which every host is forgiven: a router or resolver restarts in less. After
# as many without a probe of a host that answered before, the caller gives up.
FORGIVEN_FOR = 600.0


class Fault(Struct, frozen=True):
    """A part of our side that can fail, and the failure kinds that show it.

    The kinds are those of ``krowlspider/fetch/errors.py``. ``suspect``: the host may also be the
    cause. ``certain``: a host is hardly the cause. ``sure``: no host is the cause, so one failure
    begins an outage. ``refuted_by``: only a host that was reached can cause it, so it counts as an
    answer. ``answerless``: seconds since the last answer before suspect failures can begin an
    outage.
    """

    suspect: frozenset[str]
    certain: frozenset[str]
    sure: frozenset[str]
    refuted_by: frozenset[str] = frozenset()
    answerless: float = 0.0


# Failures of a request already sent, also on a kept-alive connection. They are evidence only for a
# host that answered before.
SILENCE = frozenset({"first_byte_timeout", "total_timeout"})
# The whole network. Resets and early ends are no evidence either way: a gateway that restarts sends
# them too.
NETWORK = Fault(
    suspect=SILENCE
    | {"dns_timeout", "dns_servfail", "connect_timeout", "connect_failed"}
    | {"proxy_target", "proxy_refused", "proxy_closed"},
    certain=frozenset({"dns_down", "network_down"}),
    sure=frozenset({"dns_down"}),
    refuted_by=frozenset({"connect_refused", "tls", "protocol", "too_large", "decode"}),
    answerless=ANSWERLESS,
)
# The DNS alone. Names that time out or fail pause nothing: hosts with cached addresses still answer
# and never ask the DNS. Success is an answer of the DNS (``ResolverStats.answered``).
RESOLVER = Fault(
    suspect=frozenset({"dns_timeout", "dns_servfail"}),
    certain=frozenset({"dns_down"}),
    sure=frozenset({"dns_down"}),
)


class FailureVerdict(Enum):
    """How a failure counts for its host."""

    COUNT = "count"
    """The host's failure: count it against the host."""
    FORGIVE = "forgive"
    """Our failure: it is no strike for the host and uses up no try."""
    BEGIN = "begin"
    """An outage begins: forgive this failure, and those in ``struck``."""
    END = "end"
    """The host's failure, but the host was reached: the outage is over."""


class Failures(NamedTuple):
    """The failures of a host since the last success: the last one's time, and their number."""

    last: float
    domain: str
    strikes: int
    certain: bool = False


class OutageWatch:
    """Decide from the result of each request whose fault it was and when requests may go out.

    Times are monotonic seconds and never go back. At most ``NOTED`` hosts are held, and as many in
    ``struck``.
    """

    def __init__(self, fault: Fault = NETWORK) -> None:
        self._fault = fault
        # By host, in the order of their times.
        self._failed: dict[str, Failures] = {}
        # Those that are evidence of an outage, by address block.
        self._evidence: dict[str, Failures] = {}
        self._answered = -inf
        self.is_out = False
        """Whether an outage is in force."""
        self.struck: dict[str, int] = {}
        """Failures by host that were wrongly counted before the last outage was noticed."""
        self.since = 0.0
        """The time at which the last outage began."""
        self.next_probe = 0.0
        """During an outage, the time at which the next request may go out."""

    def succeeded(self, now: float) -> bool:
        """Record an answer of a host, HTTP errors included; return whether it ended an outage."""
        self._answered = now
        ended = self.is_out
        self.give_up()
        return ended

    def give_up(self) -> None:
        """End the outage without an answer, because no host is left that could show its end."""
        self._failed.clear()
        self._evidence.clear()
        self.is_out = False

    def failed(
        self,
        host: str,
        kind: str,
        now: float,
        *,
        is_evidence: bool = True,
        domain: str = "",
        block: str = "",
    ) -> FailureVerdict:
        """Record a failed request to ``host`` and return its verdict.

        ``is_evidence``: the host answered its last request. Hosts never reached, or already dead,
        prove nothing. ``domain`` is the registrable domain; empty means the host itself. ``block``
        is the result of `block_of` for its address, empty when unknown.

        A crawl with only dead hosts left looks like an outage, and must still end. So suspect
        failures are forgiven for ``FORGIVEN_FOR`` seconds only; then each probe that fails counts.
        Failures that are ``certain`` are always forgiven during an outage.
        """
        if kind in self._fault.refuted_by:
            return FailureVerdict.END if self.succeeded(now) else FailureVerdict.COUNT
        certain = kind in self._fault.certain
        if not certain and kind not in self._fault.suspect:
            return FailureVerdict.COUNT
        if self.is_out:
            forgiving = now < self.since + FORGIVEN_FOR
            return FailureVerdict.FORGIVE if certain or forgiving else FailureVerdict.COUNT
        before = self._failed.get(host, Failures(now, "", 0))
        certain = certain or before.certain
        failures = Failures(now, domain or host, before.strikes + 1, certain=certain)
        note(self._failed, host, failures)
        if is_evidence:
            note(self._evidence, block or domain or host, failures)
        return FailureVerdict.BEGIN if self._begins(host, kind, now) else FailureVerdict.COUNT

    def begin(self, now: float) -> None:
        """Begin an outage that something else has shown than the failures of many hosts."""
        self.is_out = True
        self.since, self.next_probe = now, now + PROBE_EVERY
        self.struck = {name: failures.strikes for name, failures in self._failed.items()}

    def open(self, now: float) -> bool:
        """Return whether a request may go out; during an outage only a probe now and then."""
        return not self.is_out or now >= self.next_probe

    def sent(self, now: float) -> None:
        """Record that a request went out. During an outage it was the probe."""
        self.next_probe = now + PROBE_EVERY

    def __len__(self) -> int:
        return len(self._failed)

    def _begins(self, host: str, kind: str, now: float) -> bool:
        if not (kind in self._fault.sure or self._all_fail(now) or self._certain(kind)):
            return False
        self.begin(now)
        # The verdict forgives this host's last failure; only its earlier ones were counted.
        self.struck[host] -= 1
        if not self.struck[host]:
            del self.struck[host]
        return True

    def _all_fail(self, now: float) -> bool:
        """Return whether hosts of many owners fail and none answers."""
        if len(self._evidence) < HOSTS or now < self._answered + self._fault.answerless:
            return False
        return len({failures.domain for failures in self._evidence.values()}) >= HOSTS

    def _certain(self, kind: str) -> bool:
        """Return whether enough hosts fail in a way that they can hardly have caused."""
        if kind not in self._fault.certain:
            return False
        return sum(failures.certain for failures in self._failed.values()) >= HOSTS_CERTAIN


def note(noted: dict[str, Failures], key: str, failures: Failures) -> None:
    """Make an entry the last one; drop those that are too old, and the oldest over ``NOTED``."""
    noted.pop(key, None)
    noted[key] = failures
    while (oldest := next(iter(noted))) != key:
        if noted[oldest].last >= failures.last - WINDOW and len(noted) <= NOTED:
            break
        del noted[oldest]


def block_of(address: str) -> str:
    """Return the block that an address shares with others of one owner: /24, or /48 for IPv6.

    Return an empty string for an address that is not public: an intranet's hosts share one block.
    """
    ip = ip_address(address)
    if not ip.is_global:
        return ""
    prefix = _BLOCK_V4 if isinstance(ip, IPv4Address) else _BLOCK_V6
    return str(ip_network((ip, prefix), strict=False))
