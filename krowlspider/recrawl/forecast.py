"""Forecast how fresh a crawl stays with the politeness and the budget in force.

Each class of hosts has pages with known rates. The threshold of a class is that of the crawl, or a
higher one where the politeness of its hosts affords less. So the same computation says what is
reached, and what would be needed. Thresholds are tried in steps that change requests by 5 %.
"""

from __future__ import annotations

from math import exp, expm1, inf, log
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.recrawl.threshold import THRESHOLD_MAX, THRESHOLD_MIN
from krowlspider.recrawl.value import known_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_STEP = log(1.1)
_STEPS = int(log(THRESHOLD_MAX / THRESHOLD_MIN) / _STEP) + 1
_THRESHOLDS = [THRESHOLD_MIN * exp(_STEP * number) for number in range(_STEPS)]


class HostClass(NamedTuple):
    """Hosts that are alike. ``rates`` is a sample of their pages' changes a second.

    ``delay`` is the seconds from one request to the next, ``share`` the part of them for recrawls.
    Each rate costs the forecast a millisecond: a sample of fifty is enough.
    """

    name: str
    hosts: int
    pages_per_host: float
    rates: Sequence[float]
    delay: float
    share: float


class Target(NamedTuple):
    """``portion`` of all copies are outdated for at most ``age`` seconds."""

    portion: float
    age: float


class Reached(NamedTuple):
    """What a class of hosts, or the crawl, reaches.

    ``within`` is the portion of copies that are outdated for at most the target's age, ``fresh``
    that of copies that are not outdated, ``requests`` the requests a second. ``is_limited``:
    politeness affords less than the crawl's threshold asks for.
    """

    name: str
    within: float
    fresh: float
    requests: float
    is_limited: bool


class Forecast(NamedTuple):
    """What is reached, and what the target needs by this schedule.

    ``budget`` is the least number of requests a second that reaches the target; infinite if
    politeness affords no such number. ``faster`` is the factor by which each host would then have
    to be asked more often; 1 if it is enough as it is, infinite if no factor is.
    """

    classes: list[Reached]
    whole: Reached
    budget: float
    faster: float


def forecast(classes: Sequence[HostClass], budget: float, target: Target) -> Forecast:
    """Return what is reached with a budget in requests a second, which may be infinite."""
    curves = [_Curve(each, target.age) for each in classes]

    def whole(step: int, faster: float = 1.0) -> Reached:
        return _sum(curves, [curve.at(step, faster) for curve in curves])

    def reaches(step: int, faster: float = 1.0) -> bool:
        return whole(step, faster).within >= target.portion

    spent = _first(_STEPS, lambda step: whole(step).requests <= budget)
    found = [curve.at(spent) for curve in curves]
    if reaches(0):
        enough = _first(_STEPS, lambda step: not reaches(step)) - 1
        return Forecast(found, whole(spent), whole(enough).requests, 1.0)
    steps = _first(_STEPS, lambda step: reaches(0, exp(_STEP * step)))
    return Forecast(found, whole(spent), inf, exp(_STEP * steps) if steps < _STEPS else inf)


def within(rate: float, interval: float, age: float) -> float:
    """Return the portion of time in which a copy is outdated for at most ``age`` seconds.

    The page is fetched every ``interval`` seconds. With age 0 that is its freshness (Cho and
    Garcia-Molina, "Effective page refresh policies for web crawlers", ACM TODS 2003).
    """
    rest = interval - age
    if rest <= 0 or rate * rest < 1e-9:
        return 1.0
    return (age - expm1(-rate * rest) / rate) / interval


class _Curve:
    """Requests, portion within the age, and freshness of a class at each threshold, ascending.

    The step behind the last one stands for no requests at all.
    """

    def __init__(self, hosts: HostClass, age: float) -> None:
        self.hosts = hosts
        self._points: list[tuple[float, float, float]] = []
        for threshold in _THRESHOLDS:
            waits = [(rate, known_interval(rate, 1.0, threshold)) for rate in hosts.rates]
            requests = hosts.pages_per_host * _mean([1 / wait for _, wait in waits])
            in_age = _mean([within(rate, wait, age) for rate, wait in waits])
            fresh = _mean([within(rate, wait, 0.0) for rate, wait in waits])
            self._points.append((requests, in_age, fresh))
        never = _mean([float(rate <= 0) for rate in hosts.rates])
        self._points.append((0.0, never, never))

    @property
    def pages(self) -> float:
        return self.hosts.hosts * self.hosts.pages_per_host

    def at(self, step: int, faster: float = 1.0) -> Reached:
        """Return what is reached at a threshold, or at the higher one that politeness affords."""
        afforded = self.hosts.share / self.hosts.delay * faster
        own = _first(_STEPS, lambda number: self._points[number][0] <= afforded)
        requests, in_age, fresh = self._points[max(step, own)]
        name, hosts = self.hosts.name, self.hosts.hosts
        return Reached(name, in_age, fresh, requests * hosts, own > step)


def _sum(curves: Sequence[_Curve], parts: Sequence[Reached]) -> Reached:
    pages = sum(curve.pages for curve in curves)
    pairs = list(zip(curves, parts, strict=True))
    return Reached(
        "all",
        sum(curve.pages * part.within for curve, part in pairs) / pages,
        sum(curve.pages * part.fresh for curve, part in pairs) / pages,
        sum(part.requests for part in parts),
        any(part.is_limited for part in parts),
    )


def _first(end: int, holds: Callable[[int], bool]) -> int:
    """Return the first number for which a condition holds that then holds on; ``end`` if none."""
    low, high = 0, end
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
