"""Measure a crawl while a second node joins: its rate meanwhile, and how long domains rest.

Consul, the Redis servers, the web and the second node share the other core. The first node's
frontier is filled with hosts, each of a domain of its own. Half of them move to the second node, in
steps. The periods are:

- ``before``: a minute before the second node starts
- ``meanwhile``: from that start until the second node has its whole weight and all hosts have moved
- ``after``: a minute after that

The crawl's rate is that of both nodes. Two nodes do more for a page than one, because each sends
the other node the links to its hosts. So what the first node alone keeps meanwhile is given of its
rate before and after. The domains of a step rest from its beginning to its end at most. `_Steps`
measures to the beginning of the next one, which is no less, in looks of half a second.
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
# Least share of the crawl's rate that is kept meanwhile, and most seconds that a domain rests.
MIN_KEPT = 0.7
MAX_REST = 60.0
# Seconds between two looks at the register.
_LOOK = 0.5
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


class _Steps:
    """The steps by which node b takes its domains, as the register of ``consul`` shows them."""

    def __init__(self, consul: str):
        self._keys = [f"{consul}/v1/kv/krowlspider/{_CLUSTER}/nodes/{name}?raw" for name in "ab"]
        self._ring: Any = None
        self._begun = 0.0
        # Seconds of each step.
        self.took: list[float] = []

    def are_over(self) -> bool:
        """Look; return whether both nodes have their whole weight and claim nothing else."""
        try:
            records = [json.load(urllib.request.urlopen(key)) for key in self._keys]
        except OSError:
            return False
        now = time.monotonic()
        is_over = all(record["claims"] == [[["a", 1], ["b", 1]]] for record in records)
        # The newest ring by which node a gives domains away. A step ends before the next begins.
        ring = records[0]["claims"][-1]
        if ring != self._ring or is_over:
            if self._ring is not None:
                self.took.append(now - self._begun)
            self._ring, self._begun = ring if len(ring) > 1 else None, now
        return is_over


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
        steps = _Steps(consul.url)

        def is_over() -> bool:
            lags.append(first.figures()["krowl_loop_recent_lag_p99_seconds"])
            return steps.are_over()

        _until(is_over, first, second)
        meanwhile = _rates(first, begun, pages, used)
        meanwhile["second"] = round(_done(second) / (time.monotonic() - begun), 1)
        moved = first.figures()["krowl_cluster_moved_total"]
        begun, of_second = time.monotonic(), _done(second)
        after = _stretch(first, _STRETCH)
        after["second"] = round((_done(second) - of_second) / (time.monotonic() - begun), 1)
        return {
            "hosts": hosts,
            "urls": urls,
            "before": before,
            "meanwhile": meanwhile,
            "after": after,
            "hosts_moved": moved,
            "lag_p99_ms": round(1000 * max(lags)),
            "steps": [round(each, 1) for each in steps.took],
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
        time.sleep(_LOOK)


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
        f"{name:10} {figures[name]['pages_per_second']:7} pages/s, {figures[name]['cores']} cores,"
        f" over {figures[name]['seconds']} s; second node {figures[name].get('second', 0)} pages/s"
        for name in ("before", "meanwhile", "after")
    ]
    before, meanwhile, after = (figures[name] for name in ("before", "meanwhile", "after"))
    both, rest = meanwhile["pages_per_second"] + meanwhile["second"], max(figures["steps"])
    kept = both / before["pages_per_second"]
    verdict = "kept" if kept >= MIN_KEPT and rest <= MAX_REST else "MISSED"
    lines.append(
        f"{figures['hosts_moved']:,.0f} hosts went to the second node,"
        f" {figures['hosts_moved'] / meanwhile['seconds']:,.0f} a second, in steps of"
        f" {', '.join(f'{each:g}' for each in figures['steps'])} s;"
        f" a domain rested for {rest:g} s at most, {MAX_REST:g} allowed"
    )
    lines.append(
        f"meanwhile the crawl kept {kept:.0%} of its rate, at least {MIN_KEPT:.0%}: {verdict};"
        f" the first node alone {meanwhile['pages_per_second'] / before['pages_per_second']:.0%},"
        f" and {meanwhile['pages_per_second'] / after['pages_per_second']:.0%} of its rate after"
    )
    lines.append(
        "the 99th percentile of the first node's loop lag was at most"
        f" {figures['lag_p99_ms']} ms in any 10 s"
    )
    return "\n".join(lines)
