"""Webs whose changes are known: pages with steady rates, bursts, rhythms of days and weeks."""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, field
from math import exp, inf, log
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOUR, DAY = 3600.0, 86_400.0
PAGES, DAYS, SEED = 10_000, 60, 48
_PER_SITE = 50
# Kinds of pages, and their shares in percent.
SHARES = {"poisson": 60, "burst": 10, "daily": 10, "weekly": 5, "dead": 15}
# Seconds between two bursts, of a burst, and between two changes of a burst, on average.
_QUIET, _BURST, _BEAT = 10 * DAY, DAY, 3 * HOUR


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
        return self.version(since) < self.version(until)

    def version(self, at: float) -> int:
        """Return the number of changes until a time."""
        return bisect_right(self.changes, at)


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
