"""Measure a crawling node while a second node joins: its rate meanwhile, and how long it takes.

Consul, the Redis servers, the web and the second node share the other core. The first node's
frontier is filled with hosts, each of a domain of its own. Half of them move to the second node.
Figures are the first node's:

- ``before``: over a minute before the second node starts
- ``meanwhile``: from that start until the second node has its whole weight and all hosts have moved
- ``after``: over a minute after that

The share of its rate that the node keeps is given for pages a second and for pages per CPU-second,
because the hand-over may use CPU that was idle before.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.filled import HOSTS_A_BATCH, any_web, filling
from bench.page import SETTINGS
from krowlspider.cluster.membership import SEED_SIZE
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.urls.canonical import IdentityHasher
from tests.cluster.servers import consul_agent, free_port, redis_server
from tests.support.crawling import ROOT, Crawl

HOSTS, URLS = 200_000, 4_000_000
# Least share of its rate that the first node keeps.
MIN_KEPT = 0.7
# Seconds before the first figure, and of the periods before and after.
_WARM, _STRETCH = 20.0, 60.0
_TIMEOUT = 1800.0
_CLUSTER = "bench"
_NAMES = "www.site-{}.example"


class Node:
    """A process of this crawler in the cluster."""

    def __init__(self, name: str, folder: Path, consul: str, redis: str, core: int):
        self._port = free_port("127.0.0.1")
        crawl = Crawl(
            folder / name,
            settings={
                **SETTINGS,
                "KROWL_RESOLVE": json.dumps({"*.example": "127.0.0.1"}),
                "KROWL_CONSUL": consul,
                "KROWL_CLUSTER": _CLUSTER,
                "KROWL_NODE_ID": name,
                "REDIS_URL": redis,
                "PROMETHEUS_PORT": self._port,
                "STATS_CLASS": "krowlspider.engine.stats.StatsCollector",
            },
            feed=False,
        )
        with (folder / f"{name}.log").open("wb") as log:
            self.process = subprocess.Popen(
                ["taskset", "-c", str(core), *crawl.command()],
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def figures(self) -> dict[str, float]:
        """Return the node's metrics by name, without labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name.partition("{")[0]: float(value) for name, value in pairs}

    def seconds(self) -> float:
        """Return the CPU seconds that the node has used."""
        parts = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def measure(hosts: int = HOSTS, urls: int = URLS, scratch: Path | None = None) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch))
        )
        port = stack.enter_context(any_web(hosts, _NAMES))
        seed = _fill(folder / "a", hosts, urls, port)
        consul = stack.enter_context(consul_agent(folder / "consul"))
        _put(f"{consul.url}/v1/kv/krowlspider/{_CLUSTER}/seed", seed.hex().encode())
        servers = [stack.enter_context(redis_server(folder / f"redis-{name}")) for name in "ab"]
        for server in (consul, *servers):
            for thread in Path(f"/proc/{server.process.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {1})
        first = Node("a", folder, consul.url, servers[0].url, 0)
        stack.callback(first.process.kill)
        _until(lambda: _fetches(first), first)
        time.sleep(_WARM)
        before = _stretch(first, _STRETCH)
        begun, pages, used = time.monotonic(), _done(first), first.seconds()
        second = Node("b", folder, consul.url, servers[1].url, 1)
        stack.callback(second.process.kill)
        lags: list[float] = []

        def is_over() -> bool:
            lags.append(first.figures()["krowl_loop_recent_lag_p99_seconds"])
            return _has_joined(consul.url)

        _until(is_over, first, second)
        meanwhile = {
            **_rates(first, begun, pages, used),
            "hosts_moved": first.figures()["krowl_cluster_moved_total"],
            "lag_p99_ms": round(1000 * max(lags)),
        }
        after = _stretch(first, _STRETCH)
        return {
            "hosts": hosts,
            "urls": urls,
            "before": before,
            "meanwhile": meanwhile,
            "after": after,
            "of_second_after": _stretch(second, 10),
        }


def _fill(path: Path, hosts: int, urls: int, port: int) -> bytes:
    """Fill the folder of node a. Return the seed of its identities."""
    with filling(path, f"a of {_CLUSTER}") as (frontier, seed):
        hasher = IdentityHasher(seed)
        numbers = list(range(hosts))
        random.Random(1).shuffle(numbers)
        for at in range(0, hosts, HOSTS_A_BATCH):
            some = numbers[at : at + HOSTS_A_BATCH]
            pages = [
                (name, f"http://{name}/first/{page}.html")
                for name in (f"{_NAMES.format(number)}:{port}" for number in some)
                for page in range(urls // hosts)
            ]
            frontier.queue([Candidate(name, hasher.key(url), Entry(url, 3)) for name, url in pages])
    return seed.to_bytes(SEED_SIZE, "big")


def _put(url: str, value: bytes) -> None:
    urllib.request.urlopen(urllib.request.Request(url, value, method="PUT")).close()


def _fetches(node: Node) -> bool:
    """Return whether a node that may still be starting has fetched a page."""
    try:
        return _done(node) > 0
    except OSError:
        return False


def _has_joined(consul: str) -> bool:
    """Return whether both nodes have their whole weight and claim nothing else."""
    keys = (f"{consul}/v1/kv/krowlspider/{_CLUSTER}/nodes/{name}?raw" for name in "ab")
    try:
        records = [json.load(urllib.request.urlopen(key)) for key in keys]
    except OSError:
        return False
    return all(record["claims"] == [[["a", 1], ["b", 1]]] for record in records)


def _done(node: Node) -> float:
    return node.figures().get("krowl_frontier_done_total", 0.0)


def _until(condition: Any, *nodes: Node) -> None:
    """Wait for a condition.

    :raises RuntimeError: a node has ended, or it takes too long
    """
    end = time.monotonic() + _TIMEOUT
    while not condition():
        if any(node.process.poll() is not None for node in nodes) or time.monotonic() > end:
            raise RuntimeError("a node has ended, or the wait took too long")
        time.sleep(0.5)


def _stretch(node: Node, seconds: float) -> dict[str, float]:
    begun, pages, used = time.monotonic(), _done(node), node.seconds()
    time.sleep(seconds)
    return _rates(node, begun, pages, used)


def _rates(node: Node, begun: float, pages: float, used: float) -> dict[str, float]:
    took = time.monotonic() - begun
    return {
        "seconds": round(took, 1),
        "pages_per_second": round((_done(node) - pages) / took, 1),
        "cores": round((node.seconds() - used) / took, 2),
    }


def table(figures: dict[str, Any]) -> str:
    lines = [f"{figures['hosts']:,} hosts with {figures['urls']:,} URLs on a node that crawls"]
    lines += [
        f"{name:16} {row['pages_per_second']:7} pages/s, {row['cores']} cores,"
        f" over {row['seconds']} s"
        for name, row in figures.items()
        if isinstance(row, dict)
    ]
    before, meanwhile = figures["before"], figures["meanwhile"]
    kept = meanwhile["pages_per_second"] / before["pages_per_second"]
    of_cpu = kept * before["cores"] / meanwhile["cores"]
    verdict = "kept" if min(kept, of_cpu) >= MIN_KEPT else "MISSED"
    lines.append(
        f"{meanwhile['hosts_moved']:,.0f} hosts went to another node,"
        f" {meanwhile['hosts_moved'] / meanwhile['seconds']:,.0f} a second;"
        f" meanwhile the crawl kept {kept:.0%} of its rate and {of_cpu:.0%} of its pages per"
        f" CPU-second, at least {MIN_KEPT:.0%}: {verdict};"
        f" the 99th percentile of its loop lag was at most {meanwhile['lag_p99_ms']} ms in any 10 s"
    )
    return "\n".join(lines)
