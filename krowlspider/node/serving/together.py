"""What the processes of a crawl answer, put together as if one had answered."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

from krowlspider.crawl.status import by_last_part, reasons_of_all
from krowlspider.frontier.stopped import dropped_in, fetched_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from krowlspider.node.figures import Figures, OneProcess
    from krowlspider.node.tree import Tree

    Answers = Mapping[str, Any]

_SUMS = ("queued", "deferred", "hosts", "due", "in_flight")
# Counts that no store keeps.
OWN = ("statuses", "failed")
# Samples that are of the time since the one before, and seconds after which they hold no more.
_OF_THE_MOMENT = ("pages_per_second", "failed_per_second", "in_flight", "lag_ms")
_GONE_AFTER = 15.0
# Seconds between two samples of all, at least.
_APART = 1.5


@dataclass(frozen=True, slots=True)
class Served:
    """A crawl of ``processes`` in ``tree``, of at most ``max_pages`` pages, 0 for no limit.

    The processes may become fewer. ``restarts`` returns how many processes were started again.
    """

    tree: Tree
    processes: Sequence[str]
    figures: Figures
    spider: str
    max_pages: int
    restarts: Callable[[], int]


def status_of_all(processes: Mapping[str, OneProcess]) -> dict[str, Any]:
    """Return the figures of processes together, by the names of `Control.status`."""
    every = [each.status for each in processes.values()]
    counters = sum((each.counters for each in processes.values()), Counter[str]())
    own = sum((each.own for each in processes.values()), Counter[str]())
    return {
        **{name: each for name, each in every[0].items() if not name.startswith("counters")},
        **{name: sum(each[name] for each in every) for name in _SUMS},
        "done": counters["done"],
        "fetched": fetched_in(counters),
        "dropped": dropped_in(counters),
        **{name: by_last_part(own, f"{name}/") for name in OWN},
        "archive_mb": round(own["archive_mb"], 4),
        "seconds": max(each["seconds"] for each in every),
        "paused": reasons_of_all({name: each.status["paused"] for name, each in processes.items()}),
    }


def own_counts(status: Mapping[str, Any]) -> dict[str, float]:
    """Return what a process counts in memory alone."""
    found = {f"{name}/{key}": count for name in OWN for key, count in status[name].items()}
    return {**found, "archive_mb": status["archive_mb"]}


def hosts_of_all(answers: Answers, sort: str, limit: int) -> list[dict[str, Any]]:
    """Return the rows that are the greatest by ``sort``. A host that an order puts off has no due
    time: it comes first."""
    rows = chain.from_iterable(answers.values())
    key = lambda row: float("inf") if row[sort] is None else row[sort]
    return sorted(rows, key=key, reverse=True)[:limit]


def pages_of_all(answers: Answers, limit: int) -> list[dict[str, Any]]:
    """Return the last pages, those of each process in their order."""
    rows = chain.from_iterable(zip_longest(*answers.values()))
    return [row for row in rows if row is not None][:limit]


def history_of_all(answers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the samples of processes added up, at the times of all of them.

    Processes that were started at different times take samples at different ones.
    """
    every = list(answers)
    fields: list[str] = every[0]["fields"]
    rows = [answer["samples"] for answer in every]
    times = sorted({row[0] for each in rows for row in each})
    at = [0] * len(rows)
    samples: list[list[float]] = []
    for time in times:
        for number, each in enumerate(rows):
            while at[number] < len(each) and each[at[number]][0] <= time:
                at[number] += 1
        if samples and time - samples[-1][0] < _APART:
            samples.pop()
        last = [each[now - 1] for each, now in zip(rows, at, strict=True) if now]
        samples.append([time, *_added(fields, last, time)[1:]])
    return {"fields": fields, "samples": samples}


def _added(fields: list[str], rows: list[list[float]], time: float) -> list[float]:
    found = []
    # Of a process that is gone, nothing goes on.
    present = [row for row in rows if time - row[0] <= _GONE_AFTER]
    for number, name in enumerate(fields):
        values = [row[number] for row in (present if name in _OF_THE_MOMENT else rows)]
        found.append(max(values, default=0.0) if name == "lag_ms" else sum(values))
    return found
