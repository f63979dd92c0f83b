"""What the processes of a crawl answer, put together as if one had answered."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

from krowlspider.crawl.status import reasons_of_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from krowlspider.node.figures import Figures
    from krowlspider.node.tree import Tree

    Answers = Mapping[str, Any]

_SUMS = ("done", "queued", "deferred", "hosts", "due", "in_flight", "archive_mb")
_COUNTS = ("fetched", "dropped", "statuses", "failed")
# Samples of which the greatest counts; the others are added up.
_GREATEST = ("time", "lag_ms")


@dataclass(frozen=True, slots=True)
class Served:
    """A crawl of ``processes`` in ``tree``, of at most ``max_pages`` pages, 0 for no limit.

    ``restarts`` returns how many processes were started again.
    """

    tree: Tree
    processes: Sequence[str]
    figures: Figures
    spider: str
    max_pages: int
    restarts: Callable[[], int]


def status_of_all(answers: Answers) -> dict[str, Any]:
    """Return the sum of what `Control.status` returns at each process, by name."""
    every = list(answers.values())
    total = dict(every[0])
    for name in _SUMS:
        total[name] = sum(each[name] for each in every)
    for name in _COUNTS:
        total[name] = dict(sum((Counter(each[name]) for each in every), Counter[str]()))
    total["seconds"] = max(each["seconds"] for each in every)
    total["paused"] = reasons_of_all({name: each["paused"] for name, each in answers.items()})
    return total


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
    """Return the samples added up, from the last one back: all are taken at the same intervals."""
    fields: list[str] = []
    total: list[list[float]] = []
    for answer in answers:
        fields = answer["fields"]
        both = zip_longest(total, reversed(answer["samples"]))
        total = [_added(fields, one, other) for one, other in both]
    return {"fields": fields, "samples": total[::-1]}


def _added(fields: list[str], one: list[float] | None, other: list[float] | None) -> list[float]:
    if one is None or other is None:
        return list(one or other or ())
    return [
        max(a, b) if name in _GREATEST else a + b
        for name, a, b in zip(fields, one, other, strict=True)
    ]
