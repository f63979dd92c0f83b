"""The metrics of processes added up, in Prometheus' text format."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_ADDED = ("counter", "histogram")
_START = "process_start_time_seconds"
_LABEL = r'[a-zA-Z_]\w*="(?:[^"\\]|\\.)*"'
_SERIES = re.compile(rf"[a-zA-Z_:][\w:]*(?:\{{{_LABEL}(?:,{_LABEL})*,?\}})?", re.ASCII)


@dataclass(slots=True, eq=False)
class Answer:
    """The metrics of one process: the lines before the samples of each metric, its series that are
    added up, the others with their values, and the names of both."""

    heads: dict[str, list[str]] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


def read(text: str) -> Answer:
    """Return the metrics of a process.

    :raises ValueError: the text is not in Prometheus' format
    """
    answer = Answer()
    name, is_added, help_line = "", False, ""
    for line in filter(None, text.split("\n")):
        if line.startswith("# HELP "):
            help_line = line
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            is_added = kind in _ADDED
            answer.heads[name] = [help_line, line]
        else:
            series, _, value = line.rpartition(" ")
            if not (name and series.startswith(name) and _SERIES.fullmatch(series)):
                raise ValueError(f"not a sample of {name or 'a metric'}: {line[:80]!r}")
            number = float(value)
            answer.names[series] = name
            if is_added:
                answer.counts[series] = number
            else:
                answer.gauges[series] = value
    if not answer.names:
        raise ValueError("the answer has no metrics")
    return answer


class Sums:
    """Puts the metrics of processes together.

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

    def of(self, answers: Mapping[str, Answer]) -> str:
        """Return the metrics of all processes; ``answers`` are of the ones that answer."""
        gauges: dict[str, list[str]] = {}
        for process, answer in answers.items():
            self._take(process, answer, gauges)
        total = self._before.copy()
        for counts in self._counts.values():
            total.update(counts)
        lines = []
        for name, head in self._heads.items():
            lines += head
            lines += [f"{series} {float(total[series])}" for series in self._series[name]]
            lines += gauges.get(name, ())
        return "".join(f"{line}\n" for line in lines)

    def _take(self, process: str, answer: Answer, gauges: dict[str, list[str]]) -> None:
        for name, head in answer.heads.items():
            self._heads.setdefault(name, head)
            self._series.setdefault(name, {})
        for series in answer.counts:
            self._series[answer.names[series]][series] = None
        for series, value in answer.gauges.items():
            line = f"{_labelled(series, process)} {value}"
            gauges.setdefault(answer.names[series], []).append(line)
        if start := answer.gauges.get(_START):
            self._began(process, start)
        self._counts[process] = answer.counts

    def _began(self, process: str, start: str) -> None:
        """Keep the counts of the process of this name that has died, if this is a new one."""
        if self._starts.setdefault(process, start) != start:
            self._starts[process] = start
            self._before.update(self._counts.get(process, {}))


def _labelled(series: str, process: str) -> str:
    label = f'process="{process}"'
    return f"{series[:-1]},{label}}}" if series.endswith("}") else f"{series}{{{label}}}"
