"""Forecast how fresh a crawl stays with the politeness and the budget in force.

Each class of hosts has a sample of the estimates of its pages. The threshold of a class is that of
the crawl, or a higher one where the politeness of its hosts affords less. So the same computation
says what is reached, and what would be needed. Thresholds are tried in steps that change requests
by 5 %.
"""

from __future__ import annotations

import re
from math import exp, inf, log, log1p
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.recrawl.threshold import PLANNED, THRESHOLD_MAX, THRESHOLD_MIN
from krowlspider.recrawl.value import INTERVAL_MAX, expected_value, interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from krowlspider.recrawl.estimate import Estimate

_STEP = log(1.1)
_STEPS = int(log(THRESHOLD_MAX / THRESHOLD_MIN) / _STEP) + 1
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_TARGET = re.compile(rf"([0-9.]{{1,9}}) ?% +([0-9.]{{1,9}}) ?({'|'.join(_UNITS)})")
POLITENESS, BUDGET = "politeness", "budget"


class HostClass(NamedTuple):
    """Hosts that are alike: how many, the pages of each, and a sample of their estimates.

    ``delay`` is the seconds from one request to the next, ``share`` the part of them for recrawls.
    Each estimate costs the forecast a fifth of a millisecond.
    """

    name: str
    hosts: float
    pages_per_host: float
    estimates: Sequence[Estimate]
    delay: float
    share: float


class FreshnessTarget(NamedTuple):
    """``portion`` of all copies are outdated for at most ``age`` seconds."""

    portion: float
    age: float


# 90 % of the pages as they are now, or as they were within the last day.
TARGET = "90% 1d"


def read_target(text: str) -> FreshnessTarget:
    """Return the target in a text such as TARGET.

    :raises ValueError: it is none; the message says why
    """
    found = _TARGET.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError
        portion, age = float(found[1]) / 100, float(found[2]) * _UNITS[found[3]]
    except ValueError:
        raise ValueError(
            f"{text[:40]!r} is no target: give a portion of the pages and an age in s, min, h or d,"
            f" such as {TARGET!r}"
        ) from None
    if not 0 < portion <= 1:
        raise ValueError(f"{text[:40]!r}: the portion must be above 0 % and at most 100 %")
    if age > INTERVAL_MAX:
        raise ValueError(f"{text[:40]!r}: the age must be at most 365 d, as pages are asked yearly")
    return FreshnessTarget(portion, age)


class Reached(NamedTuple):
    """What the classes of a name, or all, reach.

    ``within`` is the portion of copies that are outdated for at most the target's age, ``fresh``
    that of copies that are not outdated, ``requests`` the requests a second. ``limit`` is what
    keeps most of their pages from more requests: POLITENESS, BUDGET, or "" if more are worth
    nothing.
    """

    name: str
    hosts: float
    pages: float
    within: float
    fresh: float
    requests: float
    limit: str


class Forecast(NamedTuple):
    """What is reached by the classes of each name, and what the target needs by this schedule.

    ``faster`` is the least factor by which each host must be asked more often to reach it: 1 if it
    is enough as it is, infinite if no factor is. ``budget`` is the least budget in requests a
    second then; infinite if ``faster`` is.
    """

    classes: list[Reached]
    whole: Reached
    is_reached: bool
    budget: float
    faster: float


def forecast(classes: Sequence[HostClass], budget: float, target: FreshnessTarget) -> Forecast:
    """Return what is reached with a budget in requests a second, which may be infinite.

    At least one class must have pages. Names are in the order of their first classes.
    """
    curves = [_Curve(each, target.age) for each in classes]
    pages = sum(curve.pages for curve in curves)

    def requests(step: int, faster: float = 1.0) -> float:
        return sum(curve.at(step, faster)[0] for curve in curves)

    def reaches(step: int, faster: float = 1.0) -> bool:
        within = sum(curve.pages * curve.at(step, faster)[1] for curve in curves) / pages
        return within >= target.portion

    spent = _first(_STEPS, lambda step: requests(step) <= budget * PLANNED)
    by_name: dict[str, list[_Curve]] = {}
    for curve in curves:
        by_name.setdefault(curve.hosts.name, []).append(curve)
    found = [_sum(name, some, spent) for name, some in by_name.items()]
    whole = _sum("all", curves, spent)
    faster = 1.0
    if not reaches(0):
        steps = _first(_STEPS, lambda step: reaches(0, exp(_STEP * step)))
        faster = exp(_STEP * steps) if steps < _STEPS else inf
    needed = inf
    if faster < inf:
        enough = _first(_STEPS, lambda step: not reaches(step, faster)) - 1
        needed = requests(enough, faster) / PLANNED
    return Forecast(found, whole, reaches(spent), needed, faster)


def within(estimate: Estimate, wait: float, age: float) -> float:
    """Return the expected portion of time in which a copy is outdated for at most ``age`` seconds.

    The page is fetched every ``wait`` seconds. With age 0 that is its freshness (Cho and
    Garcia-Molina, "Effective page refresh policies for web crawlers", ACM TODS 2003).
    """
    rest = wait - age
    if rest <= 0:
        return 1.0
    stays = exp(-estimate.shape * log1p(rest / estimate.seconds))
    # The expected seconds until the first change, of those that are left.
    return (age + expected_value(estimate, 1.0, rest) + rest * stays) / wait


class _Curve:
    """Requests a page, portion within the age, and freshness of a class at each threshold.

    The step behind the last one stands for no requests at all.
    """

    def __init__(self, hosts: HostClass, age: float) -> None:
        self.hosts = hosts
        self.pages = hosts.hosts * hosts.pages_per_host
        self._age = age
        self._points: dict[int, tuple[float, float, float]] = {_STEPS: (0.0, 0.0, 0.0)}
        # The first step that politeness affords, by factor.
        self._own: dict[float, int] = {}

    def at(self, step: int, faster: float = 1.0) -> tuple[float, float, float]:
        """Return requests a second, portion and freshness at a threshold, or at the higher one that
        politeness affords."""
        requests, portion, fresh = self._point(max(step, self.own(faster)))
        return self.pages * requests, portion, fresh

    def own(self, faster: float = 1.0) -> int:
        """Return the first step that politeness affords."""
        if faster not in self._own:
            hosts = self.hosts
            afforded = hosts.share / hosts.delay * PLANNED * faster / hosts.pages_per_host
            self._own[faster] = _first(_STEPS, lambda step: self._point(step)[0] <= afforded)
        return self._own[faster]

    def _point(self, step: int) -> tuple[float, float, float]:
        if step not in self._points:
            threshold = THRESHOLD_MIN * exp(_STEP * step)
            pages = self.hosts.estimates
            waits = [interval(each, 1.0, threshold) for each in pages]
            pairs = list(zip(pages, waits, strict=True))
            self._points[step] = (
                _mean([1 / wait for wait in waits]),
                _mean([within(*pair, self._age) for pair in pairs]),
                _mean([within(*pair, 0.0) for pair in pairs]),
            )
        return self._points[step]


def _sum(name: str, curves: Sequence[_Curve], step: int) -> Reached:
    found = [(curve.pages, curve.at(step), curve.own()) for curve in curves]
    pages = sum(count for count, _, _ in found)
    polite = sum(count for count, _, own in found if own > step)
    return Reached(
        name,
        sum(curve.hosts.hosts for curve in curves),
        pages,
        _weighted((count, point[1]) for count, point, _ in found) / pages,
        _weighted((count, point[2]) for count, point, _ in found) / pages,
        sum(point[0] for _, point, _ in found),
        POLITENESS if polite > pages / 2 else BUDGET if step else "",
    )


def _weighted(values: Iterable[tuple[float, float]]) -> float:
    return sum(weight * value for weight, value in values)


def _first(end: int, holds: Callable[[int], bool]) -> int:
    """Return the first number for which a condition holds that then holds on; ``end`` if none."""
    low, high = 0, end
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
