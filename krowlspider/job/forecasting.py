"""How fresh the pages of a crawl stay by the schedule: of a sample of its stores."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import TYPE_CHECKING, Any, TypeVar

from krowlspider.errors import KrowlError, counted, duration
from krowlspider.frontier.pages.sample import Sampled, sample
from krowlspider.frontier.store.store import STORE_ERRORS, Store
from krowlspider.recrawl.forecast import (
    TARGET,
    FreshnessTarget,
    HostClass,
    Reached,
    forecast,
    read_target,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from krowlspider.frontier.hosts.host import Host
    from krowlspider.job.recrawl import Afforded

_T = TypeVar("_T")
logger = logging.getLogger(__name__)

# Classes of hosts: the longest delay in seconds, and the most pages, of all but the last one.
_DELAYS = (1.0, 5.0, 30.0, 120.0)
_PAGES = (100, 10_000)
# Seconds for which a sample of a running crawl is used again.
_FRESH = 600.0
_DELAY_MIN = 0.001


@dataclass(frozen=True, slots=True)
class ClassForecast:
    """What the hosts of a class, or all, reach: see `Reached`. ``delay`` and ``pages_each`` are in
    words."""

    delay: str
    pages_each: str
    hosts: int
    pages: int
    within: float
    fresh: float
    requests: float
    limit: str

    @classmethod
    def of(cls, found: Reached) -> ClassForecast:
        delay, _, each = found.name.partition("|")
        return cls(
            delay,
            each,
            round(found.hosts),
            round(found.pages),
            round(found.within, 4),
            round(found.fresh, 4),
            float(f"{found.requests:.4g}"),
            found.limit,
        )


@dataclass(frozen=True, slots=True)
class CrawlForecast:
    """What a crawl reaches, and what its target needs.

    ``portion`` of its pages are to be outdated for at most ``age`` seconds. ``budget`` is in
    requests a second, ``share`` the part of the requests that the delay of a host allows.
    ``needed_budget`` and ``needed_factor`` are as `Forecast` has them; None if nothing is enough.
    ``sampled`` is the number of pages whose rows were read. ``words`` say what is needed.
    """

    portion: float
    age: float
    share: float
    budget: float
    sampled: int
    classes: list[ClassForecast]
    whole: ClassForecast
    is_reached: bool
    needed_budget: float | None
    needed_factor: float | None
    words: str = ""


def target_of(text: str) -> FreshnessTarget:
    """Return the target in a text.

    :raises KrowlError: it is none
    """
    try:
        return read_target(text)
    except ValueError as error:
        raise KrowlError(f"--forecast {error}") from error


def forecast_of(
    found: Sequence[Sampled], afforded: Afforded, target: FreshnessTarget
) -> CrawlForecast:
    """Return the forecast for a sample.

    :raises KrowlError: it has no pages
    """
    if not found:
        raise KrowlError(
            "no forecast: no row of a page that the schedule could fetch again; a crawl keeps rows"
            " with KROWL_PAGES or KROWL_RECRAWL"
        )
    classes = [_class_of(each, afforded.share) for each in found]
    made = forecast(sorted(classes, key=_order), afforded.budget, target)
    whole = CrawlForecast(
        target.portion,
        target.age,
        afforded.share,
        round(afforded.budget, 3),
        sum(len(each.estimates) for each in found),
        [ClassForecast.of(each) for each in made.classes],
        ClassForecast.of(made.whole),
        made.is_reached,
        None if made.budget == inf else float(f"{made.budget:.4g}"),
        None if made.faster == inf else round(made.faster, 2),
    )
    return replace(whole, words=_need_words(whole))


def summed(found: Sequence[CrawlForecast]) -> CrawlForecast:
    """Return the forecast of a crawl by those of its processes, which have one target.

    Each process has its own hosts and its own budget: ``needed_budget`` and ``needed_factor`` are
    enough for each of them to reach the target by itself.
    """
    by_name: dict[tuple[str, str], list[ClassForecast]] = {}
    for one in found:
        for each in one.classes:
            by_name.setdefault((each.delay, each.pages_each), []).append(each)
    whole = _together([each.whole for each in found])
    budgets = [each.needed_budget for each in found if each.needed_budget is not None]
    factors = [each.needed_factor for each in found if each.needed_factor is not None]
    is_possible = len(budgets) == len(factors) == len(found)
    made = replace(
        found[0],
        budget=round(sum(each.budget for each in found), 3),
        sampled=sum(each.sampled for each in found),
        classes=[_together(some) for some in by_name.values()],
        whole=whole,
        is_reached=whole.within >= found[0].portion,
        needed_budget=float(f"{sum(budgets):.4g}") if is_possible else None,
        needed_factor=max(factors) if is_possible else None,
    )
    return replace(made, words=_need_words(made))


def _together(some: Sequence[ClassForecast]) -> ClassForecast:
    pages = sum(each.pages for each in some) or 1
    return replace(
        max(some, key=lambda each: each.pages),
        hosts=sum(each.hosts for each in some),
        pages=sum(each.pages for each in some),
        within=round(sum(each.within * each.pages for each in some) / pages, 4),
        fresh=round(sum(each.fresh * each.pages for each in some) / pages, 4),
        requests=float(f"{sum(each.requests for each in some):.4g}"),
    )


def _class_of(found: Sampled, share: float) -> HostClass:
    delay = max(found.delay, _DELAY_MIN)
    name = f"{_bound(delay, _DELAYS)} s|{_bound(found.pages, _PAGES)}"
    return HostClass(name, found.hosts, found.pages, found.estimates, delay, share)


def _bound(value: float, bounds: Sequence[float]) -> str:
    for bound in bounds:
        if value <= bound:
            return f"up to {bound:,g}"
    return f"over {bounds[-1]:,g}"


def _order(each: HostClass) -> tuple[int, int]:
    """Return what sorts classes by delay, then by pages."""
    slower = sum(each.delay > bound for bound in _DELAYS)
    return slower, sum(each.pages_per_host > bound for bound in _PAGES)


class Forecasts:
    """The forecasts of a running crawl, made in a thread. ``delay`` is as in `sample`.

    A sample is used for ten minutes.
    """

    def __init__(self, store: Store, delay: Callable[[Host], float], afforded: Afforded):
        self._store = store
        self._delay = delay
        self._afforded = afforded
        self._sampled: list[Sampled] = []
        self._made = -inf
        self._lock = asyncio.Lock()
        self._is_closed = False
        self._last: dict[FreshnessTarget, CrawlForecast] = {}

    async def close(self) -> None:
        """Wait until nothing is read: a store must not be closed meanwhile."""
        self._is_closed = True
        async with self._lock:
            pass

    async def of(self, text: str = "") -> CrawlForecast:
        """Return the forecast for the target in a text, TARGET without one.

        :raises KrowlError: the text is no target, there are no pages, or the crawl ends
        :raises StoreError: the store cannot be read
        """
        target = target_of(text or TARGET)
        async with self._lock:
            if self._is_closed:
                raise KrowlError("no forecast: the crawl ends")
            if time.monotonic() - self._made >= _FRESH:
                self._sampled = await _in_thread(sample, self._store, self._delay)
                self._last = {}
                # A crawl that has just begun has its first pages soon.
                self._made = time.monotonic() if self._sampled else -inf
            if target not in self._last:
                made = forecast_of, self._sampled, self._afforded, target
                self._last = {target: await _in_thread(*made)}
            return self._last[target]

    async def log(self) -> None:
        """Log a line of the forecast, and one of each class of hosts, if there are pages."""
        try:
            found = await self.of()
        except (KrowlError, *STORE_ERRORS) as error:
            logger.debug("No forecast: %s", error)
            return
        logger.info("Forecast: %s", one_line(found))
        for each in found.classes:
            logger.info("Forecast of %s", class_line(each, found.age))


async def _in_thread(work: Callable[..., _T], *given: Any) -> _T:
    """Return what a call in a thread returns. If this is cancelled, wait for the thread first."""
    made = asyncio.ensure_future(asyncio.to_thread(work, *given))
    try:
        return await asyncio.shield(made)
    except asyncio.CancelledError:
        await asyncio.wait([made])
        raise


def one_line(found: CrawlForecast) -> str:
    """Return what is reached, and whether that is the target, in one line."""
    return (
        f"{_reached_words(found.whole, found.age)}; target {percent(found.portion)}: {found.words}"
    )


def class_line(each: ClassForecast, age: float) -> str:
    """Return what the hosts of a class reach, in one line."""
    return (
        f"{counted(each.hosts, 'host')} with a delay of {each.delay} and {each.pages_each} pages"
        f" each: {_reached_words(each, age)}"
    )


def _reached_words(each: ClassForecast, age: float) -> str:
    limit = f", limited by {each.limit}" if each.limit else ""
    pages = counted(each.pages, "page")
    return (
        f"{percent(each.within)} of {pages} at most {age_words(age)} outdated,"
        f" {percent(each.fresh)} fresh, by {each.requests:,g} requests/s{limit}"
    )


def _need_words(found: CrawlForecast) -> str:
    """Return what the target would need."""
    if found.is_reached:
        return f"reached; {found.needed_budget:,g} requests/s would be enough"
    if found.needed_budget is None or found.needed_factor is None:
        return "not reached, however often hosts are asked: no page is fetched within 10 min"
    budget, slots = f"{found.needed_budget:,g} requests/s", found.needed_budget / found.share
    if found.needed_budget > found.budget:
        budget += f" in place of {found.budget:,g}, as by CONCURRENT_REQUESTS={ceil(slots)},"
    if found.needed_factor <= 1:
        return f"not reached; {budget} would be enough"
    factor = found.needed_factor
    allowed = f"{factor:,g} times as often as their delays and KROWL_RECRAWL_SHARE allow"
    if factor * found.share <= 1:
        allowed += f", as by KROWL_RECRAWL_SHARE={factor * found.share:.2f}"
    return f"not reached; hosts would have to be asked {allowed}; then {budget} would be enough"


def percent(portion: float) -> str:
    return f"{100 * portion:.1f} %".replace(".0 %", " %")


def age_words(seconds: float) -> str:
    """Return an age in the unit in which a target gives it."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds / size:,g} {unit}"
    return duration(seconds)
