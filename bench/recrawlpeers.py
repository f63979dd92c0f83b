"""Schedules of recrawls: ours, those of others, and oracles that know the rates of the pages.

The rules and defaults of others are those of Nutch 1.x (AdaptiveFetchSchedule) and of StormCrawler
3 (AdaptiveScheduler).
"""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING, Protocol

from bench.recrawlweb import DAY, Page
from krowlspider.recrawl import threshold as thresholds
from krowlspider.recrawl.estimate import Estimate, observe
from krowlspider.recrawl.prior import PageKind, SiteChanges, prior
from krowlspider.recrawl.value import INTERVAL_MAX, INTERVAL_MIN, due_time, is_due, known_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_HALVINGS = 24


class Schedule(Protocol):
    """When a page is due: after it was found, and after each later fetch."""

    def first(self, number: int, page: Page) -> float: ...

    def asked(self, number: int, since: float, now: float) -> float:
        """Return ``now``, or the time to which a page that is due is postponed."""
        return now

    def next(self, number: int, since: float, now: float, *, changed: bool) -> float: ...


class Ours(Schedule):
    """The schedule of `krowlspider.recrawl`, with one threshold for the crawl."""

    def __init__(self, pages: Sequence[Page], afforded: Callable[[float], float]) -> None:
        self._pages, self._afforded = pages, afforded
        self._estimates: dict[int, Estimate] = {}
        self._demands: dict[int, float] = {}
        self._sites = [SiteChanges()] * (max(page.site for page in pages) + 1)
        self._demanded, self._step_at = 0.0, 0.0
        self.threshold = thresholds.THRESHOLD_START

    def first(self, number: int, page: Page) -> float:
        estimate = prior(PageKind.PAGE, page.depth, self._sites[page.site])
        return self._plan(number, estimate, page.found)

    def next(self, number: int, since: float, now: float, *, changed: bool) -> float:
        old, page = self._estimates[number], self._pages[number]
        self._sites[page.site] = self._sites[page.site].observed(
            PageKind.PAGE, page.depth, old.mean, now - since, changed=changed
        )
        return self._plan(number, observe(old, now - since, changed=changed), now)

    def asked(self, number: int, since: float, now: float) -> float:
        estimate = self._estimates[number]
        self._adapt(now)
        if is_due(estimate, 1.0, self.threshold, now - since):
            return now
        return self._plan(number, estimate, since)

    def estimate(self, number: int) -> Estimate:
        """Return what is known of a page."""
        return self._estimates[number]

    def _adapt(self, now: float) -> None:
        while self._step_at <= now:
            rate = self._afforded(self._step_at)
            self.threshold = thresholds.step(self.threshold, self._demanded, rate)
            self._step_at += thresholds.EVERY

    def _plan(self, number: int, estimate: Estimate, now: float) -> float:
        self._adapt(now)
        self._estimates[number] = estimate
        due = due_time(estimate, 1.0, self.threshold, now, number.to_bytes(8))
        demand = thresholds.demand(estimate, 1.0, due - now)
        self._demanded += demand - self._demands.get(number, 0.0)
        self._demands[number] = demand
        return due


class Fixed(Schedule):
    """The same interval for all pages."""

    def __init__(self, interval: float) -> None:
        self._interval = interval

    def first(self, number: int, page: Page) -> float:
        return page.found + self._interval

    def next(self, number: int, since: float, now: float, *, changed: bool) -> float:
        return now + self._interval


class Halving(Schedule):
    """Half the interval after a change, twice the interval without one, within our bounds."""

    def __init__(self, first: float = DAY) -> None:
        self._first = first
        self._intervals: dict[int, float] = {}

    def first(self, number: int, page: Page) -> float:
        self._intervals[number] = self._first
        return page.found + self._first

    def next(self, number: int, since: float, now: float, *, changed: bool) -> float:
        interval = self._intervals[number] * (0.5 if changed else 2)
        self._intervals[number] = min(max(interval, INTERVAL_MIN), INTERVAL_MAX)
        return now + self._intervals[number]


class Nutch(Schedule):
    """A fifth less after a change, a fifth more without one, and never less than the time since the
    last change that was seen; the next time is a fifth of that time earlier."""

    RATE, SYNC = 0.2, 0.2
    LEAST, MOST = 60.0, 365 * DAY

    def __init__(self, first: float = 30 * DAY) -> None:
        self._first = first
        self._intervals: dict[int, float] = {}
        self._modified: dict[int, float] = {}

    def first(self, number: int, page: Page) -> float:
        self._intervals[number], self._modified[number] = self._first, page.found
        return page.found + self._first

    def next(self, number: int, since: float, now: float, *, changed: bool) -> float:
        interval, due = self.adapted(
            self._intervals[number], now, self._modified[number], changed=changed
        )
        self._intervals[number] = interval
        if changed:
            self._modified[number] = now
        return due

    @classmethod
    def adapted(
        cls, interval: float, now: float, modified: float, *, changed: bool
    ) -> tuple[float, float]:
        """Return the next interval and the next time."""
        interval *= 1 - cls.RATE if changed else 1 + cls.RATE
        quiet = 0.0 if changed else now - modified
        interval = min(max(interval, quiet, cls.LEAST), cls.MOST)
        return interval, now - quiet * cls.SYNC + interval


class StormCrawler(Schedule):
    """Half the way to the least interval after a change, half as much again without one."""

    def __init__(self, first: int = 1440, least: int = 60, most: int = 20_160) -> None:
        self._first, self._least, self._most = first, least, most
        self._minutes: dict[int, int] = {}

    def first(self, number: int, page: Page) -> float:
        self._minutes[number] = self._first
        return page.found + self._first * 60

    def next(self, number: int, since: float, now: float, *, changed: bool) -> float:
        self._minutes[number] = self.adapted(self._minutes[number], changed=changed)
        return now + self._minutes[number] * 60

    def adapted(self, minutes: int, *, changed: bool) -> int:
        """Return the next interval."""
        if changed:
            return int(0.5 * minutes + 0.5 * self._least)
        return min(int(minutes * 1.5), self._most)


class Oracle(Schedule):
    """Knows the mean rate of each page: all fetches have the value ``threshold``."""

    def __init__(self, pages: Sequence[Page], threshold: float) -> None:
        self._intervals = [known_interval(page.rate, 1.0, threshold) for page in pages]

    def first(self, number: int, page: Page) -> float:
        return page.found + self._intervals[number]

    def next(self, number: int, since: float, now: float, *, changed: bool) -> float:
        return now + self._intervals[number]

    @classmethod
    def affording(cls, pages: Sequence[Page], requests: float, end: float) -> Oracle:
        """Return the oracle that makes so many requests until ``end``."""
        low, high = log(thresholds.THRESHOLD_MIN / 100), log(thresholds.THRESHOLD_MAX)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            intervals = [known_interval(page.rate, 1.0, exp(middle)) for page in pages]
            pairs = zip(pages, intervals, strict=True)
            made = sum((end - page.found) // interval for page, interval in pairs)
            low, high = (middle, high) if made > requests else (low, middle)
        return cls(pages, exp(high))
