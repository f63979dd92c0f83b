"""The metrics of the soak, as a Prometheus has scraped them. A few are plotted."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

from bench.plot import draw_panels

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.servers import Server

# Seconds between two scrapes.
EVERY = 5
# Titles of the panels, by query.
_PANELS = {
    "process_resident_memory_bytes / 1e6": "memory, MB",
    "process_open_fds": "open files",
    "krowl_process_threads": "threads",
    "1000 * krowl_loop_recent_lag_p99_seconds": "loop lag, 99th percentile, ms",
    "1000 * krowl_loop_recent_lag_max_seconds": "loop lag, longest, ms",
    "scrape_duration_seconds": "a scrape of all metrics, s",
}
# Seconds of a query; points of a series that Prometheus returns at most.
_PATIENCE, _POINTS = 60, 11_000


class Scraped:
    """The series of a Prometheus from ``begin`` to ``end``, in epoch seconds."""

    def __init__(self, server: Server, begin: float, end: float):
        self._url = server.url
        self._begin, self._end = begin, end

    def series(self, query: str) -> list[tuple[float, float]]:
        """Return minutes since the beginning and values of the only series of a query."""
        step = max(EVERY, (self._end - self._begin) / _POINTS)
        words = {"query": query, "start": self._begin, "end": self._end, "step": step}
        (found,) = self._ask(f"query_range?{urllib.parse.urlencode(words)}")
        return [((at - self._begin) / 60, float(value)) for at, value in found["values"]]

    def samples(self) -> int:
        """Return how many samples each scrape of the crawl has, at most."""
        query = f"max_over_time(scrape_samples_scraped[{int(self._end - self._begin)}s])"
        words = {"query": query, "time": self._end}
        (found,) = self._ask(f"query?{urllib.parse.urlencode(words)}")
        return int(found["value"][1])

    def _ask(self, words: str) -> list[dict[str, list[tuple[float, str]]]]:
        with urllib.request.urlopen(f"{self._url}/api/v1/{words}", timeout=_PATIENCE) as answer:
            found: list[dict[str, list[tuple[float, str]]]] = json.load(answer)["data"]["result"]
        return found

    def plot(self, path: Path) -> None:
        """Plot a panel for each of a few metrics, over time; print their first and last tenth."""
        print(f"{self.samples()} samples a scrape, each {EVERY} s")
        print("| metric | first tenth | last tenth | most |\n| --- | --- | --- | --- |")
        panels = {}
        for query, title in _PANELS.items():
            minutes, values = zip(*self.series(query), strict=True)
            panels[title] = (minutes, values)
            tenth = max(1, len(values) // 10)
            first, last = sum(values[:tenth]) / tenth, sum(values[-tenth:]) / tenth
            print(f"| {title} | {first:,.2f} | {last:,.2f} | {max(values):,.2f} |")
        draw_panels(panels, path)
