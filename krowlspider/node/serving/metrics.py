"""The metrics of a crawl of several processes, at one address."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from krowlspider.crawl.monitoring.endpoint import health
from krowlspider.crawl.monitoring.page_note import METRICS, noted_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from krowlspider.crawl.monitoring.endpoint import Route
    from krowlspider.node.tree import Tree

# Seconds in which a process answers, and for which the answer to a client is served again.
_TIMEOUT = 3.0
_FRESH = 1.0
_ADDED = ("counter", "histogram")
_START = "process_start_time_seconds"
# Name, type, label and meaning of the metrics of the processes together.
OWN = (
    ("krowl_node_process_up", "gauge", "process", "1 if a process answers with its metrics."),
    (
        "krowl_node_restarts_total",
        "counter",
        "",
        "Times that a process died and was started again.",
    ),
)


class Sums:
    """Puts the metrics of processes together, in Prometheus' text format.

    Counters and histograms are added up: a process that dies or does not answer keeps its part, so
    that no sum falls. Gauges are those of the processes that answer, with the label ``process``.
    """

    def __init__(self) -> None:
        # The lines before the samples of each metric, and the series of those that are added up.
        self._heads: dict[str, list[str]] = {}
        self._series: dict[str, dict[str, None]] = {}
        # The counts of processes that have died, and of each process at its last answer.
        self._before: Counter[str] = Counter()
        self._counts: dict[str, dict[str, float]] = {}
        self._starts: dict[str, str] = {}

    def of(self, texts: Mapping[str, str]) -> str:
        """Return the metrics of all processes; ``texts`` are those of the ones that answer."""
        gauges: dict[str, list[str]] = {}
        for process, text in texts.items():
            self._read(process, text, gauges)
        total = self._before.copy()
        for counts in self._counts.values():
            total.update(counts)
        lines = []
        for name, head in self._heads.items():
            lines += head
            lines += [f"{series} {float(total[series])}" for series in self._series[name]]
            lines += gauges.get(name, ())
        return "".join(f"{line}\n" for line in lines)

    def _read(self, process: str, text: str, gauges: dict[str, list[str]]) -> None:
        counts: dict[str, float] = {}
        name, is_added, help_line = "", False, ""
        for line in text.splitlines():
            if line.startswith("# HELP "):
                help_line = line
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                is_added = kind in _ADDED
                self._heads.setdefault(name, [help_line, line])
                self._series.setdefault(name, {})
            else:
                series, _, value = line.rpartition(" ")
                if is_added:
                    self._series[name][series] = None
                    counts[series] = float(value)
                    continue
                if series == _START:
                    self._began(process, value)
                gauges.setdefault(name, []).append(f"{_labelled(series, process)} {value}")
        self._counts[process] = counts

    def _began(self, process: str, start: str) -> None:
        """Keep the counts of the process of this name that has died, if this is a new one."""
        if self._starts.setdefault(process, start) != start:
            self._starts[process] = start
            self._before.update(self._counts.get(process, {}))


def _labelled(series: str, process: str) -> str:
    label = f'process="{process}"'
    return f"{series[:-1]},{label}}}" if series.endswith("}") else f"{series}{{{label}}}"


class Metrics:
    """Asks the processes of a tree for their metrics.

    ``restarts`` returns how many processes were started again.
    """

    def __init__(
        self, tree: Tree, path: str, processes: Sequence[str], restarts: Callable[[], int]
    ):
        self._tree = tree
        self._path = path
        self._processes = processes
        self._restarts = restarts
        self._sums = Sums()
        self._lock = asyncio.Lock()
        self._text = ""
        self._end = float("-inf")

    def routes(self) -> dict[str, Route]:
        """Return what answers at each path."""
        return {"/healthz": health, self._path: self._answer}

    async def _answer(self, _: web.BaseRequest) -> web.Response:
        kind = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        return web.Response(body=(await self.text()).encode(), headers=kind)

    async def text(self) -> str:
        """Return the metrics of all, asked for at most a second ago."""
        async with self._lock:
            if time.monotonic() >= self._end:
                self._text = await self._ask_all()
                self._end = time.monotonic() + _FRESH
            return self._text

    async def _ask_all(self) -> str:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_TIMEOUT)) as session:
            asked = [self._ask(session, process) for process in self._processes]
            answers = dict(zip(self._processes, await asyncio.gather(*asked), strict=True))
        texts = {process: text for process, text in answers.items() if text}
        up = {f'{{process="{name}"}}': int(name in texts) for name in self._processes}
        lines = []
        for (name, kind, _, text), values in zip(OWN, (up, {"": self._restarts()}), strict=True):
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{labels} {value}" for labels, value in values.items()]
        return "".join(f"{line}\n" for line in lines) + self._sums.of(texts)

    async def _ask(self, session: aiohttp.ClientSession, process: str) -> str:
        """Return the metrics of a process; "" if it does not answer."""
        if (url := noted_url(self._tree.path / process, METRICS)) is None:
            return ""
        try:
            async with session.get(url, raise_for_status=True) as answer:
                return await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return ""
