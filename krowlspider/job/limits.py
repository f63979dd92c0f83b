"""The limits of a crawl: pages that may still be popped, seeds first, and warnings of its caps."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import islice
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING

from krowlspider.errors import counted, duration
from krowlspider.frontier.entry_queues import OTHERS
from krowlspider.frontier.hosts.host import SEED_PRIORITY
from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy import Request
    from scrapy.settings import BaseSettings

    from krowlspider.cluster.register.port import Allowance
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.job.in_flight import InFlight

# Seconds that a queue must shrink before its end is estimated.
_SHRINKING = 20.0
# Seconds before its end within which a crawl is said to be ending: some scrapes of Prometheus.
ENDING = 120.0


@dataclass(slots=True)
class CrawlLimits:
    """Pages done, answers received, and seconds; 0 or None is no limit.

    ``last`` says for what a crawl waits that has sent as many pages as it may. A crawl that is
    being stopped has no time left.
    """

    pages: int | None = None
    answers: int = 0
    seconds: float = 0.0
    last: str = ""
    is_stopping: bool = False


def progress(
    limits: CrawlLimits,
    *,
    pages: int,
    answers: int,
    seconds: float,
    queued: int,
    is_paused: bool = False,
    since: float = 0.0,
    wait: float = 0.0,
) -> str:
    """Return how many pages of how many are done, and the time until the first limit is reached.

    The time is estimated from the average rate in ``seconds``, and left out while there is none.
    It counts down while no page ends: ``since`` are the seconds since the last one ended, and
    ``wait`` those until the next request may be sent. While the crawl is paused, has nothing
    ``queued`` or waits for its last requests, only a limit of seconds has an end.
    """
    text = (
        f"{pages:,} of {counted(limits.pages, 'page')}" if limits.pages else counted(pages, "page")
    )
    if limits.answers:
        text += f", {answers:,} of {counted(limits.answers, 'answer')}"
    left = [
        max((seconds - since) / count * max(0, limit - count) - since, wait)
        for count, limit in ((pages, limits.pages), (answers, limits.answers))
        if limit and count and queued and not (is_paused or limits.last)
    ]
    if limits.seconds and not limits.is_stopping:
        left.append(limits.seconds - seconds)
    if limits.last and not is_paused:
        text += f", {limits.last}"
    return f"{text}, {duration(min(left))} left" if left and min(left) > 0 else text


def until_empty(looks: Sequence[tuple[float, int, int]]) -> float:
    """Return the seconds after which the queue is empty if it shrinks as before; 0 if it does not,
    or grew in between.

    A look has a time in seconds, pages done, and URLs queued.
    """
    seconds, queued = looks[-1][0] - looks[0][0], [look[2] for look in looks]
    before, now, middle = queued[0], queued[-1], len(queued) // 2
    if seconds < _SHRINKING or now >= before or max(queued[middle:]) > min(queued[:middle]):
        return 0.0
    return seconds / (before - now) * now


def may_end(limits: CrawlLimits, pages: int, queued: int | None, seconds: float) -> bool:
    """Return whether a crawl may reach its end within ENDING seconds, at its average rate: a limit,
    or the end of its queue, if that is not None."""
    if limits.seconds and limits.seconds - seconds <= ENDING:
        return True
    soon = pages / max(seconds, 1.0) * ENDING
    is_limited = limits.pages and limits.pages - pages <= soon
    return bool(is_limited) or (queued is not None and queued <= soon)


class PageBudget:
    """Counts the pages that may still be popped. Whatever else is fetched is free: robots.txt,
    sitemaps, requisites, opt-out files, redirects.

    ``left`` is this node's own number, and ``total`` what it was at first; None is no limit.
    ``left`` is below 0 if pages under way have awaited more requests. ``allowance`` is this node's
    part of the cluster's limit, which is counted too; None without one. ``is_limited``: something
    else limits the pages.
    """

    def __init__(self, allowance: Allowance | None, *, is_limited: bool = False):
        self._is_limited = is_limited or allowance is not None
        self.left: int | None = None
        self.total: int | None = None
        self._allowance = allowance

    @property
    def is_limited(self) -> bool:
        """Return whether anything limits the pages."""
        return self._is_limited or self.total is not None

    @property
    def is_spent(self) -> bool:
        """Return whether no page may be popped any more, here or in the whole cluster."""
        is_used = self.left is not None and self.left <= 0
        return is_used or (self._allowance is not None and self._allowance.spent)

    def take(self) -> None:
        """Count a page that was popped."""
        self._add(-1)
        if self._allowance is not None:
            self._allowance.take()

    def give_back(self) -> None:
        """Count off a page that was popped and not fetched."""
        self._add(1)
        if self._allowance is not None:
            self._allowance.give_back()

    def _add(self, pages: int) -> None:
        if self.left is not None:
            self.left += pages


logger = logging.getLogger(__name__)

# What drops URLs, by the reason of the drop, with its value, and how to have more room.
_CAPS = {
    "frontier": (
        "KROWL_FRONTIER_MAX = {KROWL_FRONTIER_MAX}",
        "raise it, or make room on the disk of JOBDIR,",
    ),
    "domain_share": (
        "Share of a domain of KROWL_FRONTIER_MAX = {KROWL_FRONTIER_MAX}",
        "raise it",
    ),
    "domain_budget": ("KROWL_DOMAIN_BUDGET = {KROWL_DOMAIN_BUDGET}", "raise it"),
    "outbox": ("Room for URLs of other nodes", "start the nodes that own these hosts,"),
}
# The caps whose URLs are counted by domain in the lines during the crawl.
_OF_DOMAINS = ("domain_share", "domain_budget")
_WAY_OUT = (
    "They are not marked as seen: %s and start again with the same JOBDIR and seeds."
    " That queues dropped seeds, and links when another page names them. Links of pages that are"
    " done need a new JOBDIR, or scrapy frontier JOBDIR --import FILE"
)
# The caps on sitemaps, which no setting changes.
_SITEMAPS = {
    "sitemap_count": "sitemaps of a robots.txt (200), or of one domain in a run (200 MB)",
    "sitemap_depth": "levels of sitemaps (3)",
}
# Seconds between two lines that name hosts.
PERIOD = 10.0
# Hosts named in a line.
NAMED = 5


class CapWarnings:
    """Warns of hosts whose URLs a cap drops: of each domain, or once for a cap of the whole crawl,
    and once in PERIOD seconds.

    ``clock`` returns seconds.
    """

    def __init__(self, frontier: Frontier, settings: BaseSettings, clock: Callable[[], float]):
        self._frontier = frontier
        self._before = frontier.counters.copy()
        self._caps = {cap: text.format_map(settings) for cap, (text, _) in _CAPS.items()}
        self._clock = clock
        self._next = clock() + PERIOD
        self._warned: set[tuple[str, str]] = set()

    def look(self) -> None:
        """Log the hosts that have lost the most URLs and were not named yet, if any."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + PERIOD
        lost = [
            (hosts.total(), cap, name, hosts)
            for cap in self._caps
            for name, hosts in self._lost_by(cap).items()
            if (cap, name) not in self._warned
        ]
        if lost:
            count, cap, name, hosts = max(lost, key=itemgetter(0, 1, 2))
            self._warned.add((cap, name))
            self._warn(cap, count, "so far", hosts)

    def _lost_by(self, cap: str) -> dict[str, Counter[str]]:
        """Return the hosts that have lost URLs to a cap, by domain if it is one of domains."""
        hosts = self._frontier.refused.hosts(cap)
        if cap not in _OF_DOMAINS:
            return {"": hosts} if hosts else {}
        found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for host, count in hosts.items():
            if host != OTHERS:
                found[domain_of(host)][host] = count
        return found

    def end(self) -> None:
        """Log for each cap how many URLs it has dropped in this run, and of which hosts most."""
        dropped = self._frontier.counters - self._before
        for cap in self._caps:
            if count := dropped[f"dropped/{cap}"]:
                self._warn(cap, count, "in this run", self._frontier.refused.hosts(cap))
        for cap, limit in _SITEMAPS.items():
            if count := dropped[f"dropped/{cap}"]:
                logger.warning(
                    "Limit on %s: %s dropped in this run. Give the URLs named there as seeds to"
                    " have them fetched",
                    limit,
                    counted(count, "sitemap"),
                )

    def _warn(self, cap: str, count: int, when: str, hosts: Counter[str]) -> None:
        most = [(host, lost) for host, lost in hosts.most_common(NAMED + 1) if host != OTHERS]
        names = [f"{host}: {lost}" for host, lost in most[:NAMED]]
        if rest := count - sum(lost for _, lost in most[:NAMED]):
            names.append(f"other hosts: {rest}")
        logger.warning(
            "%s: %s dropped %s (%s). " + _WAY_OUT,
            self._caps[cap],
            counted(count, "URL"),
            when,
            ", ".join(names),
            _CAPS[cap][1],
        )


# Seconds for which other pages wait for a seed: that is in flight, that may be fetched then, and
# that may be tried again then, when no more pages may be fetched than such seeds wait.
_IN_FLIGHT = 30.0
_SOON = 10.0
_AGAIN = 150.0
# Seconds after seeds were sent to other nodes, which take them in, and say so.
_TAKEN_IN = 3.0
# Seconds between two looks at what other nodes have.
_LOOK = 1.0

# The arguments of a spider that refuse the redirect of a seed, by the word of `Scope.refusal`.
_ARGUMENTS = {"host": "same_host", "domain": "same_domain", "allow": "allow"}
# Redirects that are named.
_NAMED = 3


class SeedsFirst:
    """Says when other pages must wait for seeds.

    ``wake`` is called when they need not wait any more. ``under_way`` has the requests for seeds,
    and for the robots.txt of seeds, with the end of the wait for each. The first one ends first.
    ``others`` returns whether other nodes have seeds to fetch; None without other nodes.
    """

    def __init__(
        self,
        frontier: Frontier,
        budget: PageBudget,
        wake: Callable[[], None],
        others: Callable[[], bool] | None = None,
    ):
        self._turns = frontier.schedule.seed_turns
        self._due = frontier.schedule.due
        self._now = frontier.now
        self._budget = budget
        self._wake = wake
        self._others = others
        # Whether they have, and until when that holds.
        self._others_have = False
        self._looks_at = 0.0
        # `SeedTurns.sent_count` at the last look.
        self._sent = 0
        self.under_way: dict[Request, float] = {}
        # When the last of them ended.
        self._ended = 0.0

    def begin(self, request: Request, in_flight: InFlight) -> None:
        """Note a request that is handed to the engine."""
        lease, fetch = in_flight.lease, in_flight.robots_fetch
        if lease.priority == SEED_PRIORITY if lease else fetch and fetch.host.queue.has_seeds:
            self.under_way[request] = self._now() + _IN_FLIGHT

    def finish(self, request: Request) -> None:
        """Note that a request is over, and that what it has found is queued."""
        if self.under_way.pop(request, None) is not None:
            self._ended = self._now()
            if not self.under_way:
                self._wake()

    def only(self) -> bool:
        """Return whether only seeds may be fetched now."""
        if not self._is_limited():
            return False
        return self._must_wait() or (self._others is not None and self.waits_for_others())

    def has_own(self) -> bool:
        """Return whether pages are limited, and links must wait for seeds of this node, here and at
        other nodes."""
        return self._is_limited() and self._has_own()

    def _is_limited(self) -> bool:
        if not self._turns.is_limited and self._budget.is_limited:
            self._turns.limit()
        return self._turns.is_limited

    def _has_own(self) -> bool:
        # Here, seeds at the front are popped before links anyway.
        return self._turns.any_at_front(self._due.next_due) or self._must_wait()

    def waits_for_others(self) -> bool:
        """Return whether links must wait for the seeds of other nodes alone."""
        if self._others is None or not self._turns.is_limited:
            return False
        if self._has_own():
            return False
        now = self._now()
        if self._sent != self._turns.sent_count:
            self._sent = self._turns.sent_count
            self._others_have, self._looks_at = True, now + _TAKEN_IN
        if now >= self._looks_at:
            self._others_have, self._looks_at = self._others(), now + _LOOK
        return self._others_have

    def _must_wait(self) -> bool:
        under_way, turns, left = self.under_way, self._turns, self._budget.left
        if not under_way and not turns.any_known:
            return False
        now = self._now()
        while under_way and (first := next(iter(under_way.items())))[1] <= now:
            del under_way[first[0]]
        if under_way or turns.are_coming or turns.next_fresh() <= now + _SOON:
            return True
        are_few = left is not None and left <= turns.known
        if now < self._ended + (_AGAIN if are_few else _SOON) and turns.waits_in_line():
            return True
        return are_few and min(turns.next_fresh(), turns.next_tried()) <= now + _AGAIN

    def next_end(self) -> float:
        """Return when a wait may end by itself, in seconds of the job clock; inf if something else
        ends it before."""
        now = self._now()
        if self.waits_for_others():
            return self._looks_at
        ends = [*islice(self.under_way.values(), 1), self._ended + _SOON, self._ended + _AGAIN]
        return min((end for end in ends if end > now), default=inf)


class SeedRedirects:
    """Counts the redirects of seeds that the scope refuses, and keeps the first ones."""

    def __init__(self) -> None:
        self._count = 0
        self._named: list[str] = []

    def refuse(self, seed: str, target: str, reason: str) -> None:
        """Count a redirect, if an argument about hosts or ``allow`` is the reason."""
        if reason not in _ARGUMENTS:
            return
        self._count += 1
        if self._count <= _NAMED:
            self._named.append(f"{seed} to {target} ({_ARGUMENTS[reason]})")

    def warning(self) -> str:
        """Return the redirects with the way out; "" if none was refused."""
        if not self._count:
            return ""
        rest = self._count - len(self._named)
        named = ", ".join([*self._named, *([f"{rest:,} more"] if rest else [])])
        return (
            f"Redirects of seeds lead out of the scope and were not followed: {named}. Give the"
            " targets as seeds, or begin a new JOBDIR with a wider scope"
        )
