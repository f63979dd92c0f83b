"""Simulate recrawls of a web whose changes are known, by our schedule and by others.

No page is fetched. Ours runs on the real frontier; of the others, and of histories, time is a
number, and a schedule is what it computes. Freshness is the share of
time in which the copy of a page is as the page is, over all pages since they were found. Each
schedule is compared with ours, and with an oracle, at equal requests.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from math import ceil, floor, inf, log10
from typing import TYPE_CHECKING, Any

from bench.recrawlfrontier import FrontierCrawl, scratch
from bench.recrawlpeers import Fixed, Halving, Nutch, Oracle, Ours, StormCrawler
from bench.recrawlweb import DAY, DAYS
from krowlspider.recrawl.threshold import PLANNED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from bench.recrawlpeers import Schedule
    from bench.recrawlweb import Page

# Runs until ours makes as many requests as another schedule.
_RUNS = 3
# Share by which these may differ from its requests, on the frontier.
_NEAR = 0.02
# Between two runs the budget is at most multiplied by this.
_FACTOR_MAX = 2.0


@dataclass(slots=True)
class Figures:
    """What a schedule reached: freshness, requests a day, and freshness by kind of page."""

    freshness: float
    requests: float
    by_kind: dict[str, float] = field(repr=False)
    late: float = 0.0
    """Mean seconds by which fetches were later than due."""
    hurried: int = 0
    """Requests that came sooner than the delay of their host."""


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
        page, since, now = pages[number], last[number], due if is_new else max(due, free)
        if now >= end:
            continue
        if is_new:
            heapq.heappush(heap, (schedule.first(number, page), number, False))
            continue
        rate = afforded(now) if afforded else inf
        again = schedule.asked(number, since, now) if rate else due
        if again != now:
            # Postponed, or nothing can be afforded now.
            free = free if rate else now + 60
            heapq.heappush(heap, (again, number, False))
            continue
        free, fetches, late = now + 1 / rate, fetches + 1, late + now - due
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
    by_kind = {kind: fresh[kind] / whole[kind] for kind in sorted(whole)}
    return Figures(fresh.total() / whole.total(), fetches / days, by_kind, late / max(fetches, 1))


def peers() -> dict[str, Schedule]:
    return {
        "every day": Fixed(DAY),
        "StormCrawler, from 1 day": StormCrawler(),
        "halving and doubling, from 1 day": Halving(),
        "Nutch, from 1 day": Nutch(DAY),
        "every 7 days": Fixed(7 * DAY),
        "Nutch, from 30 days": Nutch(),
    }


def ours(pages: Sequence[Page], requests: float, days: float) -> Figures:
    """Return what our schedule alone reaches with about so many requests a day."""
    budget = requests / PLANNED
    for _ in range(_RUNS):
        rate = budget / DAY
        figures = simulate(pages, Ours(pages, lambda _: rate), days, lambda _: rate)  # noqa: B023
        budget *= _more(requests, figures)
    return figures


class OnFrontier:
    """Runs our schedule on the real frontier. Each call learns for the next one what budget makes
    how many requests."""

    def __init__(self) -> None:
        self._factor = 1 / PLANNED

    def __call__(self, pages: Sequence[Page], requests: float, days: float) -> Figures:
        """Return what it reaches with about so many requests a day."""
        for _ in range(_RUNS):
            figures = crawl(pages, requests * self._factor, days)
            more = _more(requests, figures)
            self._factor *= more
            if abs(more - 1) < _NEAR:
                break
        return figures


def _more(requests: float, figures: Figures) -> float:
    """Return by what to multiply the budget for so many requests."""
    return min(requests / max(figures.requests, 1e-9), _FACTOR_MAX)


def crawl(pages: Sequence[Page], budget: float, days: float) -> Figures:
    """Return what our schedule reaches on the real frontier, with a budget of requests a day."""
    with scratch() as folder:
        crawled = FrontierCrawl(pages, folder, budget / DAY)
        crawled.run_until(days * DAY)
        crawled.close()
    parts = crawled.freshness()
    whole = sum(time for _, time in parts.values())
    fresh = sum(time for time, _ in parts.values()) / whole
    by_kind = {kind: time / of for kind, (time, of) in parts.items()}
    return Figures(fresh, crawled.again / days, by_kind, hurried=len(crawled.hurried))


def measure(
    found: Sequence[Page],
    days: int = DAYS,
    our_crawl: Callable[[Sequence[Page], float, float], Figures] = ours,
    names: Collection[str] = (),
) -> dict[str, Any]:
    """Return a row for each other schedule, or for those with ``names``, and the freshness by kind
    at the requests of the first one."""
    rows: list[dict[str, Any]] = []
    kinds: dict[str, dict[str, float]] = {}
    hurried = 0
    for name, schedule in peers().items():
        if names and name not in names:
            continue
        theirs = simulate(found, schedule, days)
        mine = our_crawl(found, theirs.requests, days)
        made, end = mine.requests * days, days * DAY
        oracle = simulate(found, Oracle.affording(found, made, end), days)
        hurried += mine.hurried
        rows.append(
            {
                "schedule": name,
                "requests a day": round(theirs.requests, 1),
                "its freshness": round(theirs.freshness, 4),
                "our requests": round(mine.requests, 1),
                "our freshness": round(mine.freshness, 4),
                "oracle": round(oracle.freshness, 4),
                "ours of oracle": round(mine.freshness / oracle.freshness, 3),
            }
        )
        print(rows[-1], flush=True)
        if not kinds:
            parts = {"fixed": theirs, "ours": mine, "oracle": oracle}
            kinds = {name: part.by_kind for name, part in parts.items()}
    return {
        "pages": len(found),
        "days": days,
        "changes": sum(len(page.changes) for page in found),
        "hurried": hurried,
        "rows": rows,
        "kinds": kinds,
    }


def table(figures: Mapping[str, Any]) -> str:
    """Return the figures as Markdown."""
    rows = figures["rows"]
    by_kind = [
        {"kind": kind, **{name: round(part[kind], 3) for name, part in figures["kinds"].items()}}
        for kind in figures["kinds"]["ours"]
    ]
    head = (
        f"{figures['pages']:,} pages, {figures['days']} days, {figures['changes']:,} changes,"
        f" {figures['hurried']} requests too soon"
    )
    return "\n\n".join([head, _markdown(rows), _markdown(by_kind)])


def _markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows)]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def plot(figures: Mapping[str, Any], path: Path) -> None:
    """Draw freshness over requests as SVG: others as points, ours and the oracle as lines."""
    rows = sorted(figures["rows"], key=lambda row: row["requests a day"])
    left = min(log10(min(row["our requests"], row["requests a day"])) for row in rows)
    right = max(log10(max(row["our requests"], row["requests a day"])) for row in rows)
    least = min(min(row["our freshness"], row["its freshness"]) for row in rows)
    lowest = floor(least * 10 - 0.2) / 10

    def place(requests: float, freshness: float) -> tuple[float, float]:
        across = 80 + 560 * (log10(requests) - left) / (right - left)
        return round(across, 1), round(330 - 290 * (freshness - lowest) / (1 - lowest), 1)

    parts = [
        (
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 390" font-size="13"'
            ' font-family="sans-serif">'
        ),
        '<rect width="960" height="390" fill="white"/>',
        '<text x="20" y="22">freshness</text>',
        '<text x="280" y="380">requests a day (logarithmic)</text>',
    ]
    for tenth in range(round(lowest * 10), 11):
        y = place(10**left, tenth / 10)[1]
        parts.append(f'<path d="M70 {y}H650" stroke="#ddd"/>')
        parts.append(f'<text x="62" y="{y + 4}" text-anchor="end">{tenth / 10}</text>')
    for power in range(floor(left), ceil(right) + 1):
        for mark in (10**power, 2 * 10**power, 5 * 10**power):
            if left <= log10(mark) <= right:
                x = place(mark, lowest)[0]
                parts.append(f'<path d="M{x} 330v6" stroke="#000"/>')
                parts.append(f'<text x="{x}" y="352" text-anchor="middle">{mark:,}</text>')
    for at, (label, key, colour) in enumerate(
        (("oracle", "oracle", "#c1660a"), ("ours", "our freshness", "#1b6ca8"))
    ):
        places = (place(row["our requests"], row[key]) for row in rows)
        line = " ".join(f"{x},{y}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="680" y="{40 + 22 * at}" fill="{colour}">{label}</text>')
    for number, row in enumerate(rows):
        x, y = place(row["requests a day"], row["its freshness"])
        parts.append(f'<circle cx="{x}" cy="{y}" r="4" fill="#555"/>')
        # Those that lie near to each other have their numbers on either side.
        aside, anchor = (-8, "end") if number % 2 == 0 else (8, "start")
        number_at = f'x="{x + aside:.1f}" y="{y + 16}" text-anchor="{anchor}"'
        parts.append(f"<text {number_at}>{number + 1}</text>")
        text = escape(f"{number + 1}  {row['schedule']}")
        parts.append(f'<text x="680" y="{100 + 22 * number}">{text}</text>')
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")
