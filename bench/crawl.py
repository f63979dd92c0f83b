"""Compare whole crawls of one web of real HTML by this crawler and others, in turn, on one core.

The web (`bench.pages`, `bench.web`) runs on the other core. ``pages`` counts its answers of status
200, without robots.txt and without pages that the crawler reports as not parsed. CPU seconds are
those of all threads and children, user and system, from the start of the process to its end.
"""

from __future__ import annotations

import re
import statistics
import tempfile
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.crawlers import CRAWLERS, Task
from bench.web import BenchWeb
from tests.support.crawling import write_seeds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench.pages import Shape

# The figures of each run, and their names in the table.
FIGURES = {
    "pages_per_cpu_second": "pages per CPU-second",
    "steady_pages_per_cpu_second": "the same without the start",
    "pages_per_second": "pages per second",
    "links_per_cpu_second": "links decided per CPU-second",
    "rss_mb": "peak RSS, MB",
    "lag_p99_ms": "event loop lag p99, ms",
    "lag_max_ms": "event loop lag, most, ms",
    "start_cpu_seconds": "CPU seconds of the start",
    "server_cpu_seconds": "CPU seconds of its Redis",
    "pages": "pages",
    "requests_per_page": "requests per page",
    "connections_per_request": "connections per request",
    "bytes_per_page": "bytes per page",
    "links_per_page": "links per page",
    "distinct_links_per_page": "distinct links per page",
    "disallowed": "pages fetched against robots.txt",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How to crawl: ``pages`` of a run, and ``rounds``, in each of which every crawler runs once.

    ``concurrency`` is the number of requests in flight. ``settings`` are for krowlspider only.
    """

    pages: int
    rounds: int
    concurrency: int = 256
    settings: Mapping[str, object] = field(default_factory=dict)
    scratch: Path | None = None


def measure(shape: Shape, names: Iterable[str], plan: Plan) -> dict[str, Any]:
    """Return each crawler's runs, with median, least and most of their figures."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with BenchWeb(shape) as web:
        for number in range(plan.rounds):
            for name, runs in found.items():
                runs.append(_once(name, web, plan))
                print(f"round {number + 1}, {name}: {_brief(runs[-1])}", flush=True)
    return {
        "pages": plan.pages,
        "concurrency": plan.concurrency,
        "web": {"hosts": shape.hosts, "tls": shape.tls, "gzip": shape.gzip}
        | {"missing": shape.missing, "names": shape.names, "latency": shape.latency}
        | {"small": shape.small},
        "crawlers": {name: _summary(runs) for name, runs in found.items()},
        "ratios": _ratios(found),
        "unequal": {name: CRAWLERS[name].unequal for name in found},
    }


def _once(name: str, web: BenchWeb, plan: Plan) -> dict[str, float]:
    first = _run(name, web, replace(plan, pages=1), seeds=1)
    start = first["cpu_seconds"]
    run = _run(name, web, plan, seeds=web.shape.hosts)
    cpu = run["cpu_seconds"]
    done = run["pages"]
    return {
        "pages_per_cpu_second": round(done / cpu, 1),
        "steady_pages_per_cpu_second": round((done - 1) / (cpu - start), 1),
        "pages_per_second": round(done / run["seconds"], 1),
        "links_per_cpu_second": round(run["links"] / run["sent"] * done / cpu),
        "start_cpu_seconds": round(start, 2),
        "start_seconds": round(first["seconds"], 2),
        "requests": run["requests"],
        "requests_per_page": round(run["requests"] / done, 2),
        "connections_per_request": round(run["connections"] / run["requests"], 2),
        "bytes_per_page": round(run["bytes"] / run["sent"]),
        "links_per_page": round(run["links"] / run["sent"], 1),
        "distinct_links_per_page": round(run["distinct_links"] / run["sent"], 1),
        **{key: round(run[key], 2) for key in ("cpu_seconds", "seconds", "server_cpu_seconds")},
        **{key: run[key] for key in ("pages", "rss_mb", "disallowed", "strange")},
        **{key: run[key] for key in ("lag_p99_ms", "lag_max_ms") if key in run},
    }


def _run(name: str, web: BenchWeb, plan: Plan, seeds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=plan.scratch) as folder:
        path = Path(folder)
        file = write_seeds(path / "seeds.txt", web.shape.seeds(seeds))
        web.take()
        task = Task(web, file, plan.pages, path, plan.concurrency, plan.settings)
        usage, server = CRAWLERS[name].run(task)
        asked = web.take()
        return {
            **asked,
            "sent": asked["pages"],
            "requests": sum(asked[kind] for kind in ("pages", "robots", "missing", "strange")),
            "pages": min(asked["pages"], _parsed(path / "log")),
            "cpu_seconds": usage.cpu_seconds,
            "seconds": usage.seconds,
            "rss_mb": usage.rss_mb,
            "server_cpu_seconds": server,
            **_lag(path / "log"),
        }


def _parsed(log: Path) -> float:
    """Return how many pages a peer reports as parsed; infinity for this crawler.

    A peer drops pages that it has fetched when it stops. This crawler never does.
    """
    counts = re.findall(rb"(?m)^pages: (\d+)$", log.read_bytes())
    return int(counts[-1]) if counts else inf


def _lag(log: Path) -> dict[str, float]:
    """Return the loop lag from this crawler's summary; nothing for other crawlers."""
    lags = re.findall(
        rb"event loop +late by ([\d.]+) ms \(99th percentile\), ([\d.]+)", log.read_bytes()
    )
    return {"lag_p99_ms": float(lags[-1][0]), "lag_max_ms": float(lags[-1][1])} if lags else {}


def _summary(runs: list[dict[str, float]]) -> dict[str, Any]:
    return {
        "runs": runs,
        **{
            key: {
                "median": statistics.median(run[key] for run in runs),
                "least": min(run[key] for run in runs),
                "most": max(run[key] for run in runs),
            }
            for key in runs[0]
        },
    }


def _ratios(found: Mapping[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the first crawler's pages per CPU-second divided by each other's, over all rounds."""
    first, *others = found
    ratios = {}
    for other in others:
        each = [
            mine["pages_per_cpu_second"] / theirs["pages_per_cpu_second"]
            for mine, theirs in zip(found[first], found[other], strict=True)
        ]
        ratios[f"{first} / {other}"] = {
            "median": round(statistics.median(each), 2),
            "least": round(min(each), 2),
            "most": round(max(each), 2),
        }
    return ratios


def _brief(run: Mapping[str, float]) -> str:
    return (
        f"{run['pages_per_cpu_second']} pages per CPU-second ({run['pages']:.0f} pages,"
        f" {run['cpu_seconds']} CPU-seconds), {run['rss_mb']:.0f} MB"
    )


def table(figures: Mapping[str, Any]) -> str:
    crawlers = figures["crawlers"]
    lines = ["", " " * 34 + "".join(f"{name:>24}" for name in crawlers)]
    for key, what in FIGURES.items():
        cells = (_cell(summary[key]) if key in summary else "" for summary in crawlers.values())
        lines.append(f"{what:<34}" + "".join(f"{cell:>24}" for cell in cells))
    lines.append("")
    lines += [f"{what}: {_cell(ratio)} times" for what, ratio in figures["ratios"].items()]
    lines += ["", "Differences between the crawlers:"]
    lines += [f"  {name}: {text}" for name, text in figures["unequal"].items()]
    return "\n".join(lines)


def _cell(spread: Mapping[str, float]) -> str:
    least, most = spread["least"], spread["most"]
    return f"{spread['median']:,g}" + ("" if least == most else f" ({least:,g} to {most:,g})")
