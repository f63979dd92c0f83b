"""Measure the calls that watch and change a running crawl, and what clients cost its event loop.

A frontier is filled, then crawled from a web that answers every URL of it. Each call is made over
HTTP, with an answer that no earlier call can have left: while the crawl is paused, which shows the
cost of the call, and while it goes on, where a call waits for the event loop as a page does. Then
the lag of the event loop is measured without clients, and with some that ask what the live page
asks, as often as it does.
"""

from __future__ import annotations

import json
import re
import statistics
import tempfile
import threading
import time
import urllib.request
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.filled import any_web
from bench.frontier import Web
from bench.page import SETTINGS, fill, hosts_of
from tests.support.crawling import Crawl

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENTS = 8
# Seconds between two rounds of a client; of a phase; and for which the lag is that of late.
EACH, PHASE, LATE = 2.0, 30.0, 20
# The stat of the lag, among the metrics.
_LAG = re.compile(rb"^krowl_loop_recent_lag_p99_seconds (\S+)$", re.MULTILINE)


class Caller:
    """Makes calls to a crawl at ``url``, with its token."""

    def __init__(self, url: str, token: str):
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._numbers = count()

    def ask(self, path: str) -> bytes:
        # An answer is used again for a second, by its query.
        sign = "&" if "?" in path else "?"
        return self._get(f"{path}{sign}again={next(self._numbers)}", None)

    def order(self, name: str, /, **body: Any) -> bytes:
        return self._get(f"/api/v1/{name}", json.dumps(body).encode())

    def _get(self, path: str, body: bytes | None) -> bytes:
        request = urllib.request.Request(self._url + path, body, self._headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: bytes = answer.read()
        return found

    def lag(self) -> float:
        """Return the 99th percentile of the loop's lag of late, in ms."""
        found = _LAG.search(self._get("/metrics", None))
        assert found is not None
        return 1000 * float(found[1])


def measure(queued: int, rounds: int, scratch: Path | None = None) -> dict[str, Any]:
    """Return the ms of each call, as median and maximum, and the lag of the event loop in ms."""
    hosts = hosts_of(queued)
    with (
        tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch) as folder,
        any_web(hosts) as port,
    ):
        jobdir = Path(folder) / "job"
        began = time.monotonic()
        fill(jobdir, queued, hosts, port)
        filled = time.monotonic() - began
        settings = {
            **SETTINGS,
            "PROMETHEUS_ENABLED": True,
            "PROMETHEUS_PORT": 0,
            "KROWL_STATUS_INTERVAL": LATE,
        }
        crawl = Crawl(jobdir, settings=settings)
        crawl.start()
        try:
            crawl.wait_until(lambda: "page http://127" in crawl.log)
            found = re.search(r"page (http://127\S+?)/;", crawl.log)
            assert found is not None
            token = (jobdir / "control-token").read_text().strip()
            caller = Caller(found[1], token)
            time.sleep(LATE)
            calls = {}
            for state in ("resume", "pause"):
                given = _times(1, [(state, {})], caller)
                # The first call, before which nobody has watched.
                calls[state] = {"the first": given} if state == "resume" else {}
                # What is in flight ends.
                time.sleep(EACH)
                for name, each in _calls(hosts, port).items():
                    calls[state][name] = _times(rounds, each, caller)
            caller.order("resume")
            time.sleep(PHASE)
            alone = caller.lag()
            watched = _lag_with_clients(caller)
        finally:
            crawl.kill()
    return {
        "queued": queued,
        "hosts": hosts,
        "filled_s": round(filled),
        "calls": calls,
        "lag_p99_ms": {"alone": alone, "clients": watched},
    }


def _calls(hosts: int, port: int) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Return the calls by name; each is a question, or an order with its body."""
    host = f"{Web(hosts).host(1)}:{port}"
    asked = {
        "status": "/api/v1/status",
        "hosts": "/api/v1/hosts?sort=delay&limit=100",
        "host": f"/api/v1/host?name={host}",
        "explain": f"/api/v1/explain?url=http://{host}/section/1/page.html",
        "pages": "/api/v1/pages",
        "history": "/api/v1/history",
        "metrics": "/metrics",
    }
    orders: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "pause and resume a host": [("pause", {"host": host}), ("resume", {"host": host})],
        "block and unblock a seventh": [
            ("block", {"name": "example1.com"}),
            ("unblock", {"name": "example1.com"}),
        ],
        "delay": [
            ("delay", {"host": host, "seconds": 9}),
            ("delay", {"host": host, "seconds": None}),
        ],
        "add": [("add", {"url": f"http://{host}/added"})],
        "set": [("set", {"name": "KROWL_DELAY_FACTOR", "value": 0})],
        # The last: after it, a paused crawl goes on.
        "pause and resume": [("pause", {}), ("resume", {})],
    }
    return {**{name: [(path, {})] for name, path in asked.items()}, **orders}


def _times(
    rounds: int, calls: list[tuple[str, dict[str, Any]]], caller: Caller
) -> dict[str, float]:
    """Return median and maximum of the ms of a call."""
    spent = list(_spent(rounds, calls, caller))
    return {"median_ms": round(statistics.median(spent), 1), "most_ms": round(max(spent), 1)}


def _spent(rounds: int, calls: list[tuple[str, dict[str, Any]]], caller: Caller) -> Iterator[float]:
    for _ in range(rounds):
        for what, body in calls:
            began = time.perf_counter()
            if what[0] == "/":
                caller.ask(what)
            else:
                caller.order(what, **body)
            yield (time.perf_counter() - began) * 1000


def _lag_with_clients(caller: Caller) -> float:
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(EACH):
            for name in ("history", "status", "hosts?sort=queued&limit=100", "pages"):
                try:
                    caller.ask(f"/api/v1/{name}")
                except OSError:
                    # Over eight connections the oldest is closed.
                    continue

    clients = [threading.Thread(target=watch) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    is_over.wait(PHASE)
    lag = caller.lag()
    is_over.set()
    for client in clients:
        client.join()
    return lag


def table(figures: dict[str, Any]) -> str:
    lag = figures["lag_p99_ms"]
    where = f"{figures['queued']:,} URLs queued on {figures['hosts']:,} hosts"
    lines = [f"{where} (filled in {figures['filled_s']} s)"]
    for state, title in (("pause", "paused"), ("resume", "crawling")):
        lines.append(f"  {title}:")
        lines += [
            f"    {name:28} {spent['median_ms']:7.1f} ms, at most {spent['most_ms']:7.1f}"
            for name, spent in figures["calls"][state].items()
        ]
    lines.append(
        f"  lag of the loop, p99: {lag['alone']:.1f} ms alone,"
        f" {lag['clients']:.1f} ms with {CLIENTS} clients"
    )
    return "\n".join(lines)
