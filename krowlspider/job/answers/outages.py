"""Outages of our network, name servers or proxies: the crawl pauses, and no host gets a strike."""

from __future__ import annotations

import logging
from collections import deque
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from krowlspider.fetch.errors import LocalExhausted, ProxyDenied, ProxyFailed, ProxyInvalid
from krowlspider.frontier.stopped import fetched_in
from krowlspider.politeness.outage import (
    FORGIVEN_FOR,
    NETWORK,
    RESOLVER,
    SILENCE,
    Failures,
    FailureVerdict,
    OutageWatch,
    block_of,
    note,
)
from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from krowlspider.fetch.resolver import ResolverStats
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts.host import Host

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


logger = logging.getLogger(__name__)

# Answers whose hosts are remembered as candidates for probes: some seconds of a fast crawl.
_REMEMBERED = 1000
# Most hosts that are probed in rotation.
_PROBED = 100
# Most characters of the error of a proxy in what a person reads.
_ERROR = 200


class Outages:
    """Learns how every request ended; decides whether a failure counts and when to pause.

    Probes are the few requests that go out during an outage. ``stop_for`` is as
    `Job.stop_for`.
    """

    def __init__(self, frontier: Frontier, names: ResolverStats, stop_for: Callable[[str], None]):
        self._frontier = frontier
        self._stop_for = stop_for
        self._ways = Ways()
        self._names = names
        self._answered = names.answered
        self._network = OutageWatch(NETWORK)
        self._resolver = OutageWatch(RESOLVER)
        # Whether failed look-ups of names began the last outage: then names that are found end it.
        self._by_names = False
        # The URL of the proxy that was broken in the last outage, "" if something else was.
        self._broken = ""
        # What does not work in the last outage.
        self.what = ""
        # Number of outages that began since this start.
        self.begun = 0
        # Whether failures of hosts never reached prove nothing: some host has answered, or an
        # outage was given up.
        self._needs_proof = any(fetched_in(frontier.counters).values())
        # Names of the hosts that answered last, the latest at the end.
        self._answering: deque[str] = deque(maxlen=_REMEMBERED)
        # During an outage, the hosts to probe, the next one first.
        self._probes: deque[str] = deque()
        # When a host that had answered before was last sent a request during an outage, or the last
        # certain failure came. Seconds of the job clock.
        self._asked = 0.0

    def answered(self, host: Host, proxy: str = "") -> None:
        """Record that a host answered, through the proxy of a URL, or directly."""
        now = self._frontier.now()
        self._needs_proof = True
        self._ways.answered(proxy, now)
        self._answering.append(host.name)
        if self._network.succeeded(now):
            self._end(self._network)
        self._ask_resolver()

    def failed(self, host: Host, kind: str, *, has_head: bool = False) -> bool:
        """Record that a request to a host failed; return True if it does not count.

        ``has_head`` is true if the head of the answer had come. Then the host was reached, however
        slow the rest is.
        """
        self._ask_resolver()
        # A host that refuses was reached.
        self._needs_proof |= kind in NETWORK.refuted_by
        if has_head and kind in SILENCE:
            return False
        now, domain = self._frontier.now(), domain_of(host.name)
        verdicts = [
            self._network.failed(
                host.name,
                kind,
                now,
                is_evidence=self._is_evidence(host, kind),
                domain=domain,
                block=_address_block(host),
            ),
            # Most names are looked up for hosts never reached, so all hosts without errors count.
            self._resolver.failed(
                host.name, kind, now, is_evidence=not host.rate.errors, domain=domain
            ),
        ]
        if kind in NETWORK.certain:
            self._asked = now
        watches = (self._network, self._resolver)
        for watch, verdict in zip(watches, verdicts, strict=True):
            if verdict is FailureVerdict.END:
                self._end(watch)
        if begun := [
            w for w, v in zip(watches, verdicts, strict=True) if v is FailureVerdict.BEGIN
        ]:
            self._begin(begun, kind)
        return kind == LocalExhausted.kind or bool(
            {FailureVerdict.FORGIVE, FailureVerdict.BEGIN} & {*verdicts}
        )

    def proxy_failed(self, kind: str, error: str, way: Way) -> Judgement:
        """Record that a request did not get through its proxy; return what follows."""
        now = self._frontier.now()
        judgement = self._ways.judge(way, kind, now)
        if judgement is Judgement.WRONG:
            self._stop_for(error)
        elif judgement is Judgement.OUT:
            self._asked = now
            if not self._network.is_out:
                self._network.begin(now)
                self._begin_outage(error[:_ERROR], by_names=False)
                logger.warning(
                    "No request gets through: %s. The crawl pauses and tries one every few seconds;"
                    " no failure counts against a URL or a host.",
                    error[:_ERROR],
                )
                self._forgive([self._network])
        return judgement

    def doubted(self, host: Host, kind: str, way: Way) -> bool:
        """Record that a request failed that went through a proxy, which may be the cause; return
        True if it does not count."""
        now = self._frontier.now()
        if self._network.is_out:
            return way.proxy == self._broken and now < self._network.since + FORGIVEN_FOR
        failed = self._ways.is_broken(
            way,
            host.name,
            now,
            is_evidence=host.rate.ema > 0 and not host.rate.errors,
            hosts=len(set(self._answering)),
        )
        if not failed:
            return False
        self._network.begin(now)
        # The verdict forgives this failure; only earlier ones were counted.
        if host.name in failed:
            failed[host.name] -= 1
        for name, strikes in failed.items():
            self._network.struck[name] = max(strikes, self._network.struck.get(name, 0))
        # A crawl without proxies does not load it.
        from krowlspider.fetch.proxy.protocols import parse_proxy  # noqa: PLC0415

        name = parse_proxy(way.proxy).name
        self._begin_outage(f"the proxy {name} brings no answers", by_names=False)
        self._broken = way.proxy
        logger.warning(
            "No host answers through the proxy %s (%s): it seems to be broken. The crawl pauses and"
            " tries one every few seconds; no failure counts against a host.",
            name,
            kind,
        )
        self._forgive([self._network])
        return True

    @property
    def is_out(self) -> bool:
        """Return whether no host answers: then `next_probe` returns when a request may go out."""
        return self._network.is_out

    def next_probe(self) -> float:
        """Return the seconds until a request may go out during an outage; 0 for now.

        This ends an outage in which no host that answered before is left to be probed.
        """
        now = self._frontier.now()
        if now >= self._asked + FORGIVEN_FOR:
            self._network.give_up()
            self._needs_proof = True
            logger.warning(
                "No host that answered before was left to probe for %.0f s: the pause ends, and"
                " failures count against their hosts again.",
                FORGIVEN_FOR,
            )
        return 0.0 if self._network.open(now) else self._network.next_probe - now

    def to_probe(self) -> Iterator[str]:
        """Yield the hosts to probe during an outage, the one tried last at the end.

        They answered before the outage and belong to as many owners as possible.
        """
        for _ in range(len(self._probes)):
            self._probes.rotate(-1)
            yield self._probes[-1]

    def sent(self, host: Host) -> None:
        """Record that a request to a host went out during an outage."""
        now = self._frontier.now()
        self._network.sent(now)
        if host.rate.ema:
            self._asked = now

    def _is_evidence(self, host: Host, kind: str) -> bool:
        """Return whether a failure of this host is evidence that our network is down.

        A host that answered its last request is evidence. Until some host has answered, hosts never
        reached count too, because the network may have been down from the start. They do not count
        if they are only silent: then at least a connection was made.
        """
        if host.rate.errors:
            return False
        return host.rate.ema > 0 or not (self._needs_proof or kind in SILENCE)

    def _ask_resolver(self) -> None:
        if self._names.answered != self._answered:
            self._answered = self._names.answered
            self._succeeded(self._resolver)
            if self._by_names:
                self._succeeded(self._network)

    def _succeeded(self, watch: OutageWatch) -> None:
        if watch.succeeded(self._frontier.now()):
            self._end(watch)

    def _end(self, watch: OutageWatch) -> None:
        logger.info(
            "%s again, after %.0f s",
            "Hosts answer" if watch is self._network else "Names are found",
            self._frontier.now() - watch.since,
        )

    def _begin(self, begun: list[OutageWatch], kind: str) -> None:
        if self._network in begun:
            self._begin_outage("no host answers", by_names=kind.startswith("dns_"))
            logger.warning(
                "No host answers (%s): the network of this machine or its name servers seem to be"
                " down. The crawl pauses and probes one host every few seconds; no failure counts"
                " against a host.",
                kind,
            )
        else:
            self.begun += 1
            logger.warning(
                "No name is found (%s): the name servers seem to be down. Hosts whose addresses are"
                " known go on; no failure counts against a host.",
                kind,
            )
        self._forgive(begun)

    def _begin_outage(self, what: str, *, by_names: bool) -> None:
        self.begun += 1
        self.what, self._by_names = what, by_names
        self._broken = ""
        self._asked = self._network.since
        self._probes = deque(self._known_to_answer())

    def _forgive(self, begun: list[OutageWatch]) -> None:
        """Take back the failures that were counted before an outage was noticed."""
        for name in {name for watch in begun for name in watch.struck}:
            # A failure that both watches saw was counted once against the host.
            strikes = max(watch.struck.get(name, 0) for watch in begun)
            self._frontier.schedule.deferral.forgive(name, strikes)

    def _known_to_answer(self) -> list[str]:
        """Return hosts that answered before the outage, one of each address block and domain.

        Hosts without a failed request come first: they end a false outage immediately.
        """
        found: dict[str, str] = {}
        names = list(dict.fromkeys(reversed(self._answering)))
        struck = self._network.struck
        for name in sorted(names, key=struck.__contains__):
            host = self._frontier.schedule.cache.hosts.get(name)
            block = "" if host is None else _address_block(host)
            found.setdefault(block or domain_of(name), name)
        return list(found.values())[:_PROBED]


def _address_block(host: Host) -> str:
    """Return the block of a host's address; "" while that is unknown, or where it is not public."""
    address = host.shares.address.removeprefix("@").removesuffix("/64")
    return block_of(address) if address else ""
