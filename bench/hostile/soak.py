"""Crawl good hosts beside all attacks for an hour; plot memory, files, threads, loop lag and rate.

``python -m bench soak --seconds 3600``. With ``--busy 3``, in the second third of the time three
other processes use the core of the crawl.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.hostile.attacks import ATTACKS
from bench.hostile.run import begin, end
from bench.hostile.scraped import EVERY, Scraped
from bench.hostile.web import HostileWeb, good_names
from bench.plot import draw_panels
from bench.process import CORE
from tests.cluster.servers import prometheus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Seconds between two samples, and seconds until the attacks begin.
_EVERY = 5.0
_BEGIN = 30.0
# Port of the metrics.
_PORT = 9467
_PANELS = {
    "good_per_second": "requests/s to good hosts",
    "silence": "longest silence of good hosts, s",
    "rss_mb": "memory, MB",
    "files": "open files",
    "threads": "threads",
    "queued": "URLs queued",
    "lag_max_ms": "longest loop lag, ms",
    "web_lag_max_ms": "longest lag of the web server, ms",
    "busiest_address": "requests/s to the busiest hostile address",
}


def measure(seconds: float, results: Path, busy: int = 0) -> list[dict[str, Any]]:
    """Return a row for each sample. Leave the log of the crawl in ``results``, and a plot of the
    metrics that a Prometheus has scraped.

    In the second third of the time, ``busy`` processes use the core of the crawl beside it.
    """
    names = {name: address for attack in ATTACKS.values() for name, address in attack.hosts.items()}
    with tempfile.TemporaryDirectory() as folder, HostileWeb([*ATTACKS]) as web:
        scratch, log = Path(folder), results / "soak.log"
        process = begin(web, good_names() | names, scratch, log, PROMETHEUS_PORT=_PORT)
        config = scratch / "prometheus" / "prometheus.yml"
        config.parent.mkdir()
        target = {"static_configs": [{"targets": [f"127.0.0.1:{_PORT}"]}]}
        scraping = {"scrape_configs": [{"job_name": "krowlspider", **target}]}
        config.write_text(json.dumps({"global": {"scrape_interval": f"{EVERY}s"}, **scraping}))
        begun = time.time()
        try:
            with prometheus(config) as server, _Busy(busy, seconds / 3):
                rows = _sample(process, web, scratch / "job", seconds)
                # A metric is there from the first scrape on, after the crawl has opened.
                scraped = Scraped(server, begun + _BEGIN, time.time())
                scraped.plot(results / "soak-metrics.png")
            print(f"ended {end(process)} s after SIGINT")
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    return rows


class _Busy:
    """While a ``with`` block runs: ``count`` processes that use the crawl's core from ``third``
    seconds to twice that."""

    def __init__(self, count: int, third: float):
        loop = ["taskset", "-c", str(CORE), "sh", "-c", "while :; do :; done"]
        command = ["timeout", str(third), *loop]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._timer = threading.Timer(
            third, lambda: self._processes.extend(subprocess.Popen(command) for _ in range(count))
        )

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        for process in self._processes:
            process.terminate()
            process.wait()


def _sample(
    process: subprocess.Popen[bytes], web: HostileWeb, job: Path, seconds: float
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    begun = last = time.monotonic()
    before = begun
    attacking = False
    while (now := time.monotonic()) < begun + seconds:
        if not attacking and now > begun + _BEGIN:
            attacking = True
            web.begin()
        time.sleep(_EVERY)
        if process.poll() is not None:
            raise RuntimeError(f"the crawl ended with {process.returncode} before its time")
        taken, now = web.take(), time.monotonic()
        times = [before, *taken["good"], now]
        before = times[-2]
        rows.append(
            {
                "seconds": round(now - begun, 1),
                "good_per_second": round(len(taken["good"]) / (now - last), 1),
                "silence": round(
                    max(later - sooner for sooner, later in itertools.pairwise(times)), 2
                ),
                "busiest_address": round(
                    max(taken["hostile"].values(), default=0) / (now - last), 1
                ),
                "web_lag_max_ms": round(1000 * taken["lag"]),
                **_process(process.pid),
                **_status(job),
                **_metrics(),
            }
        )
        last = now
    return rows


def _process(pid: int) -> dict[str, int]:
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return {
        "rss_mb": int(status["VmRSS"].split()[0]) // 1024,
        "threads": int(status["Threads"]),
        "files": len([*Path(f"/proc/{pid}/fd").iterdir()]),
    }


def _metrics() -> dict[str, float]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{_PORT}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    found = re.search(r"^krowl_loop_recent_lag_max_seconds ([0-9.e+-]+)$", text, re.MULTILINE)
    return {"lag_max_ms": round(1000 * float(found[1]))} if found else {}


def _status(job: Path) -> dict[str, Any]:
    try:
        status = json.loads((job / "status.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return {"queued": status.get("queued", 0), "in_flight": status.get("in_flight", 0)}


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot a panel for each figure, over time."""
    minutes = [row["seconds"] / 60 for row in rows]
    draw_panels(
        {
            title: (minutes, [row.get(name) for row in rows])
            for name, title in _PANELS.items()
            if any(name in row for row in rows)
        },
        path,
    )


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Compare the first and last tenth of the time under attack, with least and most."""
    attacked = [row for row in rows if row["seconds"] > 2 * _BEGIN] or list(rows)
    tenth = max(1, len(attacked) // 10)
    lines = [
        "| figure | first tenth | last tenth | least | most |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, title in _PANELS.items():
        values = [row[name] for row in attacked if row.get(name) is not None]
        if values:
            first = sum(values[:tenth]) / len(values[:tenth])
            last = sum(values[-tenth:]) / len(values[-tenth:])
            lines.append(
                f"| {title} | {first:,.1f} | {last:,.1f} | {min(values):,} | {max(values):,} |"
            )
    return "\n".join(lines)
