"""Ask all processes of a crawl that ``scrapy node`` runs, as if they were one."""

from __future__ import annotations

from collections import Counter
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

from krowlspider.views.top.source import NoCrawlError, Snapshot, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_SUMS = ("done", "queued", "deferred", "hosts", "due", "in_flight", "archive_mb")
_COUNTS = ("fetched", "dropped", "statuses", "failed")
# Samples that cannot be added up.
_NO_SUMS = ("time", "lag_ms")


class Processes:
    """The processes that run below a JOBDIR, each with its folder."""

    def __init__(self, path: Path, folders: Sequence[Path]):
        self._path = path
        self._folders = folders

    def sources(self) -> dict[str, Source]:
        """Return the processes that answer, by name.

        :raises NoCrawlError: none does
        """
        found = {}
        last: NoCrawlError | None = None
        for folder in self._folders:
            try:
                found[folder.name] = Source.of(str(folder))
            except NoCrawlError as error:
                last = error
        if not found:
            raise NoCrawlError(
                f"{self._path} is not being crawled by scrapy node, or its live pages are off;"
                f" scrapy frontier {self._path} shows what it has left"
            ) from last
        return found

    def snapshot(self, sort: str, hosts: int) -> Snapshot:
        """Return the sum of what the processes answer, as `Source.snapshot`.

        One that has just ended is left out.

        :raises NoCrawlError: none answers
        """
        found: dict[str, Snapshot] = {}
        for name, source in self.sources().items():
            try:
                found[name] = source.snapshot(sort, hosts)
            except NoCrawlError:
                continue
        if not found:
            raise NoCrawlError(f"No process of {self._path} answers")
        every = found.values()
        rows = chain.from_iterable(each.hosts for each in every)
        pages = chain.from_iterable(zip_longest(*(each.pages for each in every)))
        return Snapshot(
            self._status({name: each.status for name, each in found.items()}),
            sorted(rows, key=lambda row: _order(row[sort]), reverse=True)[:hosts],
            [page for page in pages if page is not None][: max(len(each.pages) for each in every)],
            _summed(each.history for each in every),
        )

    def _status(self, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
        every = list(found.values())
        total = dict(every[0])
        for name in _SUMS:
            total[name] = sum(each[name] for each in every)
        for name in _COUNTS:
            total[name] = dict(sum((Counter(each[name]) for each in every), Counter[str]()))
        # The limit of all stands at no process.
        total |= {"folder": str(self._path), "of": None}
        total["seconds"] = max(each["seconds"] for each in every)
        total["paused"] = _together({name: each["paused"] for name, each in found.items()})
        return total


def _order(value: float | None) -> float:
    # A host that an order puts off has no due time: it comes after all others.
    return float("inf") if value is None else value


def _together(reasons: dict[str, str]) -> str:
    """Return why processes send no request, with their names if it is not the same for all."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        by_reason.setdefault(reason, []).append(name)
    if len(by_reason) == 1:
        return next(iter(by_reason))
    return "; ".join(
        f"{', '.join(names)} {reason}" for reason, names in by_reason.items() if reason
    )


def _summed(histories: Iterable[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Return the samples added up, from the last one back: all take them at the same intervals."""
    total: dict[str, list[float]] = {}
    for history in histories:
        for name, values in history.items():
            if name in _NO_SUMS:
                continue
            backwards = zip_longest(reversed(total.get(name, [])), reversed(values), fillvalue=0.0)
            total[name] = [a + b for a, b in backwards][::-1]
    return total
