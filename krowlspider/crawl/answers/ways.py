"""Judge failures of proxies: one of several, the only way out of this machine, or a wrong one."""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from krowlspider.fetch.errors import ProxyDenied, ProxyFailed, ProxyInvalid
from krowlspider.politeness.outage import Failures, note

if TYPE_CHECKING:
    from collections.abc import Mapping

# Kinds of failure that show nothing of the host.
PROXY_KINDS = frozenset({ProxyFailed.kind, ProxyDenied.kind, ProxyInvalid.kind})
# Seconds without an answer by another way, after which a proxy is the only one.
ALONE = 8.0
# Seconds for which a proxy may deny credentials that it took before: longer than it needs to start.
DENIED_FOR = 60.0
# Hosts that must fail through a proxy, with no answer to anybody meanwhile, until it counts as
# broken: it is one machine, so fewer than of a network. With fewer hosts in the crawl, all of them.
BROKEN_BY = 5
# Proxies remembered that have worked. Of more, the first ones are forgotten.
_KEPT = 1024


class Way(NamedTuple):
    """How a request leaves this machine: by the URL of a proxy, or directly with ``proxy`` "".

    ``is_own``: the environment names the proxy, for all requests. Otherwise the spider does.
    """

    proxy: str
    is_own: bool

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Self:
        """Return the way of the request that has this meta."""
        return cls(meta.get("proxy") or "", "_scheme_proxy" in meta)


class Judgement(Enum):
    """What follows from a failure of a proxy."""

    COUNT = "count"
    """It is one of several that the spider chose: the page has failed."""
    EXCUSE = "excuse"
    """Others work. The page is tried again, and nothing is counted."""
    OUT = "out"
    """It is the only way out of this machine: an outage."""
    WRONG = "wrong"
    """Its URL or its credentials are wrong: only a person can mend that."""


class Ways:
    """Knows by which proxies hosts have answered; "" is no proxy.

    Times are seconds of the job clock.
    """

    def __init__(self) -> None:
        self._worked: dict[str, None] = {}
        self._last = ""
        self._answered = -inf
        # The last answer by another way than `_last`.
        self._other = -inf
        # Since when a proxy denies credentials that it took before.
        self._denied: dict[str, float] = {}
        # By proxy, the failures of each host since a host has answered through it.
        self._doubts: dict[str, dict[str, Failures]] = {}

    def answered(self, proxy: str, now: float) -> None:
        """Record that a host answered."""
        if proxy != self._last:
            self._last, self._other = proxy, self._answered
        self._answered = now
        if proxy not in self._worked:
            self._worked[proxy] = None
            if len(self._worked) > _KEPT:
                first = next(iter(self._worked))
                del self._worked[first]
                self._denied.pop(first, None)
                self._doubts.pop(first, None)
        if self._denied:
            self._denied.pop(proxy, None)
        if self._doubts:
            self._doubts.pop(proxy, None)

    def is_broken(
        self, way: Way, host: str, now: float, *, is_evidence: bool, hosts: int
    ) -> dict[str, int]:
        """Record a failure through a proxy of which the host may be the cause. Return the failures
        by host if the proxy is broken, and the only way; else nothing.

        Failures of the last minute count. ``is_evidence``: the host answered its last request.
        ``hosts``: how many have answered.
        """
        if way.proxy not in self._worked:
            return {}
        failed = self._doubts.setdefault(way.proxy, {})
        if is_evidence or host in failed:
            strikes = failed[host].strikes if host in failed else 0
            note(failed, host, Failures(now, "", strikes + 1))
        is_silent = now >= self._answered + ALONE
        if not is_silent or len(failed) < min(BROKEN_BY, max(2, hosts)):
            return {}
        return {name: each.strikes for name, each in self._doubts.pop(way.proxy).items()}

    def judge(self, way: Way, kind: str, now: float) -> Judgement:
        """Judge a failure of the proxy of ``way``, of one of PROXY_KINDS."""
        proxy, is_own = way
        has_worked = proxy in self._worked
        if kind == ProxyInvalid.kind:
            return Judgement.WRONG if is_own else Judgement.COUNT
        if kind == ProxyDenied.kind:
            if not has_worked and (is_own or not self._worked):
                return Judgement.WRONG
            is_late = has_worked and now >= self._denied.setdefault(proxy, now) + DENIED_FOR
            if is_late and (is_own or self._is_alone(proxy, now)):
                return Judgement.WRONG
        if not self._is_alone(proxy, now):
            return Judgement.EXCUSE if is_own else Judgement.COUNT
        return Judgement.OUT if is_own or has_worked or not self._worked else Judgement.COUNT

    def _is_alone(self, proxy: str, now: float) -> bool:
        """Return whether no host has answered lately by another way."""
        other = self._other if proxy == self._last else self._answered
        return now >= other + ALONE
