"""A cluster of real processes: one Consul agent, and for each node a `scrapy crawl broad` with a
Redis of its own, crawling a mock web that sees all they do."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from redis import Redis

from tests.cluster.judges import Run, early_ends, node_of, not_archived, repeated, too_often
from tests.cluster.servers import consul_agent, redis_server
from tests.mockweb.audit import violations
from tests.mockweb.log import Entry
from tests.mockweb.oracle import reachable
from tests.mockweb.robots import allowed_at, delay_at
from tests.support.crawling import DEADLINE, Crawl, frontier_view, write_seeds
from tests.support.crawls import pages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.partition import Network
    from tests.cluster.servers import Server
    from tests.mockweb import MockWeb

# Seconds, the least that a node takes. A node that dies is replaced after three of them.
TTL = 10
NAME = "tests"
# Seconds between two looks at the web's log, which is written every 0.2 s.
_LOOK = 0.1
# In the lines of a log that come each second.
_STATUS = "[krowlspider.extensions.status]"
# Characters of each log that a failed test shows, besides those.
_SHOWN = 6000


class Cluster:
    """Nodes that crawl a mock web from ``seeds``, by default the root of every host.

    ``settings`` are those of every node, besides what makes it a node. With a `Network`, each
    server is reached by a wire that can be cut. ``agent_url``, if set, replaces the URL of Consul,
    which listens at ``host``.
    Nothing outlives the `with` block; if it ends by an exception, all logs are shown.
    """

    def __init__(
        self,
        folder: Path,
        web: MockWeb,
        seeds: list[str] | None = None,
        *,
        network: Network | None = None,
        host: str = "",
        **settings: object,
    ):
        self.folder = folder
        self.web = web
        self.runs: list[Run] = []
        self.redis: dict[str, Server] = {}
        self.agent_url = ""
        self._seeds = web.seeds() if seeds is None else seeds
        self._network = network
        self._host = host
        self._settings = settings
        self._stack = ExitStack()
        self._entries: list[Entry] = []
        self._cut_line = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.consul = stack.enter_context(consul_agent(self.folder / "consul", self._host))
            # As if the cluster were old: leases begin at once.
            self.put("founded", "1")
            self._log = stack.enter_context(self.web._log.open(encoding="utf-8"))
            self._file = write_seeds(self.folder / "seeds.txt", self._seeds)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            for run in self.runs:
                if run.crawl.process.poll() is None:
                    run.crawl.kill()
            if kind is not None:
                self._show()
        finally:
            self._stack.close()

    def _show(self) -> None:
        for run in self.runs:
            print(f"--- node {run.node}, {run.end}: {run.crawl.log_path}")
            lines = run.crawl.log.splitlines()
            print("\n".join(line for line in lines if _STATUS not in line)[-_SHOWN:])
        for name, server in {"consul": self.consul, **self.redis}.items():
            print(f"--- server {name}\n{server.log[-1000:]}")

    # --- acts on nodes ---

    def start(self, node: str, **settings: object) -> Crawl:
        """Start a node; a former one goes on with its JOBDIR and its Redis. ``settings`` are those
        of this start only."""
        if node not in self.redis:
            server = redis_server(self.folder / f"redis-{node}")
            self.redis[node] = self._stack.enter_context(server)
        agent = {"USER_AGENT": f"krowlspider/{node} (+{{contact}})"}
        crawl = Crawl(
            self.folder / node,
            arguments={"seeds": self._file},
            settings={**self.place(node), **agent, **self._settings, **settings},
            feed=False,
        ).start()
        self.runs.append(Run(node, crawl))
        if self._network is not None:
            self._network.processes[crawl.process.pid] = node
        return crawl

    def start_together(self, *nodes: str, **settings: object) -> dict[str, Crawl]:
        """Start nodes that fetch nothing before all of them have a lease."""
        self.put("signal", "PAUSED")
        crawls = {node: self.start(node, **settings) for node in nodes}
        self.until(lambda: all("is valid" in crawl.log for crawl in crawls.values()))
        self.put("signal", "RUNNING")
        return crawls

    def place(self, node: str) -> dict[str, object]:
        """The settings that make a process this node."""
        return {
            "KROWL_CONSUL": self.agent_url or self._consul_of(node),
            "KROWL_CONSUL_TTL": TTL,
            "KROWL_CLUSTER": NAME,
            "KROWL_NODE_ID": node,
            "REDIS_URL": self._redis_of(node),
        }

    def _consul_of(self, node: str) -> str:
        server, network = self.consul, self._network
        return server.url if network is None else network.wire(server, asker=node)

    def _redis_of(self, node: str) -> str:
        server, network = self.redis[node], self._network
        return server.url if network is None else network.wire(server, beside=node)

    def leave(self, *nodes: str) -> None:
        """Stop nodes by Ctrl-C, and wait until they have ended cleanly while the crawl goes on."""
        leaving = [self._running(node) for node in nodes]
        for run in leaving:
            run.crawl.process.send_signal(signal.SIGINT)
        for run in leaving:
            run.crawl.wait()
            run.ended()
            assert run.end == "shutdown", f"node {run.node} did not leave: {run.end}"

    def kill(self, node: str) -> None:
        """SIGKILL."""
        run = self._running(node)
        run.crawl.kill()
        run.end = "killed"

    def restart(self, node: str) -> Crawl:
        return self.start(node)

    def put(self, name: str, value: str) -> None:
        """Write a key of the cluster into Consul."""
        url = f"{self.consul.url}/v1/kv/krowlspider/{NAME}/{name}"
        request = urllib.request.Request(url, data=value.encode(), method="PUT")
        urllib.request.urlopen(request).close()

    def wait_all(self) -> None:
        """Wait until all that run have ended by themselves, with exit code 0."""
        running = [run for run in self.runs if run.end == "running"]
        for run in running:
            run.crawl.wait()
            run.ended()

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; no node may end meanwhile."""
        last = time.monotonic() + DEADLINE
        while not condition():
            for run in self.runs:
                gone = run.end == "running" and run.crawl.process.poll() is not None
                assert not gone, f"node {run.node} ended too early"
            assert time.monotonic() < last, "the condition never held"
            time.sleep(_LOOK)

    def _running(self, node: str) -> Run:
        (run,) = (run for run in self.runs if run.node == node and run.end == "running")
        return run

    # --- observations ---

    def entries(self, *nodes: str, since: float = 0.0) -> list[Entry]:
        """The pages that the web has been asked for by these nodes, or by any, from a time on."""
        *lines, self._cut_line = (self._cut_line + self._log.read()).split("\n")
        self._entries += pages([Entry(**json.loads(line)) for line in lines])
        return [
            entry
            for entry in self._entries
            if entry.start >= since and (not nodes or node_of(entry) in nodes)
        ]

    def meanwhile(self, seconds: float) -> None:
        """Let some seconds of an outage pass."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end)

    def go_on(self, *nodes: str, by: int) -> None:
        """Wait until these nodes, or all together, have asked for so many pages more."""
        goal = len(self.entries(*nodes)) + by
        self.until(lambda: len(self.entries(*nodes)) >= goal)

    @property
    def pending_nodes(self) -> list[str]:
        """The nodes that may have work on their disks, by Consul."""
        prefix = f"krowlspider/{NAME}/crew/"
        try:
            with urllib.request.urlopen(f"{self.consul.url}/v1/kv/{prefix}?keys") as answer:
                return [key.removeprefix(prefix) for key in json.load(answer)]
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 404:
                    raise
                return []

    def lists(self, node: str) -> dict[str, int]:
        """Return the lengths of the lists in a node's Redis, except the dead list."""
        with Redis.from_url(self.redis[node].url, decode_responses=True) as client:
            keys = [key for key in client.keys("*") if client.type(key) == "list"]
            return {key: client.llen(key) for key in keys if key != "broad:dead"}

    def lag(self, name: str) -> float:
        """The worst of all processes that ended by themselves, in ms; ``name`` as in "p99"."""
        ended = [run.crawl.stats for run in self.runs if run.end not in {"killed", "running"}]
        return max(float(stats[f"krowl/loop/lag_{name}_ms"]) for stats in ended)

    # --- judgement ---

    def faults(self, *, delay: float, repeats: int = 0) -> list[str]:
        """All that went wrong in a crawl that is over, a line each. Pages may have been fetched
        again ``repeats`` times in all; where they may, a robots.txt may be too, however often.
        Figures are printed."""
        graph, entries = self.web.graph, self.web.log()
        jobs = {run.node: self.folder / run.node for run in self.runs}
        left = [f"{node}: {said}" for node in jobs for said in self._leftovers(node)]
        print(
            f"{len(repeated(entries))} pages again, {repeats} at most; loops late by"
            f" {self.lag('p99')} ms (99 of 100), {self.lag('max')} at the worst"
        )
        return [
            *reachable(graph, self._seeds).differences(entries, at_least=repeats > 0),
            *violations(
                entries,
                min_delay=lambda host: delay_at(graph, host, delay),
                allowed=lambda host, path: allowed_at(graph, host, path),
            ),
            *too_often(entries, repeats),
            *early_ends(entries, self.runs),
            *not_archived(entries, jobs.values(), exactly=not repeats),
            *left,
            *(f"{node} is still pending" for node in self.pending_nodes),
        ]

    def _leftovers(self, node: str) -> list[str]:
        """What is on a node's disk and in its Redis, and should be with others or done."""
        last = [run.crawl for run in self.runs if run.node == node][-1]
        queued = frontier_view(self.folder / node)["queued"]
        found = {"queue": queued, "outbox": last.stats["krowl/frontier/outbox"], **self.lists(node)}
        return [f"{count} left in the {name}" for name, count in found.items() if count]


def end_session(cluster: Cluster, node: str) -> None:
    """As Consul does when the agent leaves that a node asks."""
    kv = f"{cluster.consul.url}/v1/kv/krowlspider/{NAME}/nodes/{node}"
    with urllib.request.urlopen(kv) as answer:
        (entry,) = json.load(answer)
    session = f"{cluster.consul.url}/v1/session/destroy/{entry['Session']}"
    urllib.request.urlopen(urllib.request.Request(session, method="PUT")).close()
