"""Simulate recrawls of a web whose changes are known, by our schedule and by others.

No page is fetched: time is a number, and a schedule is what it computes. Freshness is the share of
time in which the copy of a page is as the page is, over all pages since they were found.

- Oracle: knows the rate of each page, and fetches where all fetches have one value. Oracle of
  hours: knows the rate in each hour, bursts included, which no crawler can.
- Fixed interval; halving and doubling.
- Nutch 1.x, AdaptiveFetchSchedule, and StormCrawler, AdaptiveScheduler: their rules with their
  defaults; Nutch also with a first interval of a day.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from math import exp, inf, log
from typing import TYPE_CHECKING, NamedTuple, Protocol

from krowlspider.recrawl import threshold as thresholds
from krowlspider.recrawl.estimate import Estimate, observe
from krowlspider.recrawl.prior import Kind, Site, prior
from krowlspider.recrawl.value import due_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HOUR, DAY = 3600.0, 86_400.0
PAGES, DAYS, SEED = 10_000, 60, 48
_PER_SITE = 50
# Kinds of pages, and their shares in percent.
SHARES = {"poisson": 60, "burst": 10, "daily": 10, "weekly": 5, "dead": 15}
# Seconds between two bursts, of a burst, and between two changes of a burst, on average.
_QUIET, _BURST, _BEAT = 10 * DAY, DAY, 3 * HOUR
_HALVINGS = 24


class Spell(NamedTuple):
    """A time in which a page changes at one rate a second."""

    begin: float
    end: float
    rate: float


@dataclass(slots=True, eq=False)
class Page:
    """A page: when it is found, its mean rate, the times of its changes, and its spells."""

    site: int
    depth: int
    kind: str
    found: float
    rate: float
    changes: list[float] = field(repr=False)
    spells: list[Spell] = field(repr=False)

    def fresh(self, fetched: float, until: float) -> float:
        """Return the seconds until ``until`` in which the copy of ``fetched`` is fresh."""
        at = bisect_right(self.changes, fetched)
        return min(self.changes[at] if at < len(self.changes) else inf, until) - fetched

    def changed(self, since: float, until: float) -> bool:
        return bisect_right(self.changes, since) < bisect_right(self.changes, until)


def web(pages: int = PAGES, days: int = DAYS, seed: int = SEED) -> list[Page]:
    """Return pages of sites whose mean rates differ from four a day to one a year.

    Half are found at once, the others in the first half of the time.
    """
    chance, found = random.Random(seed), []
    for number in range(pages):
        if number % _PER_SITE == 0:
            site_rate = 1 / exp(chance.uniform(log(6 * HOUR), log(365 * DAY)))
        rate = min(site_rate * chance.lognormvariate(0, 1), 1 / HOUR)
        kind = chance.choices(list(SHARES), list(SHARES.values()))[0]
        spells = list(_SPELLS[kind](rate, days * DAY, chance))
        mean = sum((each.end - each.begin) * each.rate for each in spells) / (days * DAY)
        if kind == "burst":
            # What the process has on average, not what this page happened to have.
            mean = _BURST / (_BURST + _QUIET) / _BEAT
        at = chance.choice([0.0, chance.uniform(0, days / 2 * DAY)])
        changes = [time for spell in spells for time in _poisson(spell, chance)]
        depth = min(number % _PER_SITE, 2)
        found.append(Page(number // _PER_SITE, depth, kind, at, mean, changes, spells))
    return found


def _poisson(spell: Spell, chance: random.Random) -> Iterator[float]:
    at = spell.begin
    while spell.rate and (at := at + chance.expovariate(spell.rate)) < spell.end:
        yield at


def _steady(rate: float, end: float, _: random.Random) -> Iterator[Spell]:
    yield Spell(0.0, end, rate)


def _dead(_rate: float, end: float, _: random.Random) -> Iterator[Spell]:
    yield Spell(0.0, end, 0.0)


def _bursts(_rate: float, end: float, chance: random.Random) -> Iterator[Spell]:
    at = 0.0
    while at < end:
        begin = min(at + chance.expovariate(1 / _QUIET), end)
        yield Spell(at, begin, 0.0)
        at = min(begin + chance.expovariate(1 / _BURST), end)
        yield Spell(begin, at, 1 / _BEAT)


def _daily(rate: float, end: float, _: random.Random) -> Iterator[Spell]:
    """Twelve hours of each day."""
    for number in range(int(end / DAY)):
        morning, evening = number * DAY + 8 * HOUR, number * DAY + 20 * HOUR
        yield Spell(number * DAY, morning, 0.0)
        yield Spell(morning, evening, 2 * rate)
        yield Spell(evening, (number + 1) * DAY, 0.0)


def _weekly(rate: float, end: float, _: random.Random) -> Iterator[Spell]:
    """Five days of seven."""
    for number in range(int(end / DAY)):
        yield Spell(number * DAY, (number + 1) * DAY, 0.0 if number % 7 > 4 else 1.4 * rate)


_SPELLS: dict[str, Callable[[float, float, random.Random], Iterator[Spell]]] = {
    "poisson": _steady,
    "burst": _bursts,
    "daily": _daily,
    "weekly": _weekly,
    "dead": _dead,
}


class Schedule(Protocol):
    """When a page is due: after it was found, and after each later fetch."""

    def first(self, number: int, page: Page) -> float: ...

    def next(self, number: int, since: float, now: float, *, changed: bool) -> float: ...


@dataclass(slots=True)
class Figures:
    """What a schedule reached: freshness, requests a day, and freshness by kind of page."""

    freshness: float
    requests: float
    by_kind: dict[str, float]
    late: float = 0.0
    """Mean seconds by which fetches were later than due."""


def simulate(
    pages: Sequence[Page],
    schedule: Schedule,
    days: float = DAYS,
    afforded: Callable[[float], float] | None = None,
    fetched: list[float] | None = None,
) -> Figures:
    """Return what a schedule reaches.

    ``afforded`` gives the requests a second that can be made at a time; without it each page is
    fetched when it is due. Times of fetches are appended to ``fetched``.
    """
    end, fetches, late, free = days * DAY, 0, 0.0, 0.0
    fresh: Counter[str] = Counter()
    last = [page.found for page in pages]
    # Whoever is found at a time is planned at that time: the heap has both.
    heap = [(page.found, number, True) for number, page in enumerate(pages)]
    heapq.heapify(heap)
    while heap:
        due, number, is_new = heapq.heappop(heap)
        page, now = pages[number], due if is_new else max(due, free)
        if now >= end:
            continue
        if is_new:
            heapq.heappush(heap, (schedule.first(number, page), number, False))
            continue
        if afforded is not None:
            rate = afforded(now)
            if not rate:
                free = now + 60
                heapq.heappush(heap, (due, number, False))
                continue
            free = now + 1 / rate
        fetches, late, since = fetches + 1, late + now - due, last[number]
        if fetched is not None:
            fetched.append(now)
        fresh[page.kind] += page.fresh(since, now)
        last[number] = now
        planned = schedule.next(number, since, now, changed=page.changed(since, now))
        heapq.heappush(heap, (planned, number, False))
    whole: Counter[str] = Counter()
    for page, since in zip(pages, last, strict=True):
        fresh[page.kind] += page.fresh(since, end)
        whole[page.kind] += end - page.found
    by_kind = {kind: fresh[kind] / whole[kind] for kind in SHARES if whole[kind]}
    return Figures(fresh.total() / whole.total(), fetches / days, by_kind, late / max(fetches, 1))


class Ours:
    """The schedule of `krowlspider.recrawl`, with one threshold for the crawl."""

    def __init__(self, pages: Sequence[Page], afforded: Callable[[float], float]) -> None:
        self._pages, self._afforded = pages, afforded
        self._estimates: dict[int, Estimate] = {}
        self._demands: dict[int, float] = {}
        self._sites = [Site()] * (max(page.site for page in pages) + 1)
        self._demanded, self._step_at = 0.0, 0.0
        self.threshold = thresholds.THRESHOLD_START

    def first(self, number: int, page: Page) -> float:
        estimate = prior(Kind.PAGE, page.depth, self._sites[page.site])
        return self._plan(number, estimate, page.found)

    def next(self, number: int, since: float, now: float, *, changed: bool) -> float:
        old, page = self._estimates[number], self._pages[number]
        self._sites[page.site] = self._sites[page.site].observed(
            Kind.PAGE, page.depth, old.mean, now - since, changed=changed
        )
        return self._plan(number, observe(old, now - since, changed=changed), now)

    def _plan(self, number: int, estimate: Estimate, now: float) -> float:
        while self._step_at <= now:
            rate = self._afforded(self._step_at)
            self.threshold = thresholds.step(self.threshold, self._demanded, rate)
            self._step_at += thresholds.EVERY
        self._estimates[number] = estimate
        due = due_time(estimate, 1.0, self.threshold, now, number.to_bytes(8))
        demand = thresholds.demand(estimate, 1.0, due - now)
        self._demanded += demand - self._demands.get(number, 0.0)
        self._demands[number] = demand
        return due
