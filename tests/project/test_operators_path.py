"""The commands of docs/operations.md, and then of profiles, as an operator runs them in order.

In each part no page is missing, none is fetched twice, and none too early.
"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.cluster.judges import not_archived, repeated
from tests.cluster.servers import consul_agent, redis_server
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.mockweb.oracle import reachable
from tests.support import warm
from tests.support.crawling import ROOT, frontier_view, write_seeds
from tests.support.crawls import QUICK, impolite, pages
from tests.support.debian import program
from tests.support.documented import Copy, commands
from tests.support.machines import FIRST, SECOND, two_machines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mockweb.log import Entry
    from tests.support.documented import Running
    from tests.support.machines import Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GRAPH = Graph(hosts=24, pages=20, seed=3, features=QUICK)
METRICS, CONSUL = "http://127.0.0.1:9410/metrics", "http://127.0.0.1:8500"
# Delays while something is done to a crawl, and when it may come to its end.
SLOW, FAST = 5.0, 0.1


class Operator:
    """Runs the commands of the page, each once."""

    def __init__(self, folder: Path, stack: ExitStack):
        self.folder = folder
        self._stack = stack
        pages = ("operations.md", "logs-and-metrics.md")
        self._left = [each for page in pages for each in commands(ROOT / "docs" / page)]

    def begin(self, web: MockWeb, seeds: list[str]) -> None:
        """Crawl this web from now on, slowly."""
        if not (self.folder / "seeds").exists():
            self.copy = Copy(self.folder, web)
        write_seeds(self.folder / "seeds" / "example.txt", seeds)
        self.delay(SLOW)

    def delay(self, seconds: float) -> None:
        with self.copy.settings.open("a") as file:
            file.write(f"KROWL_DELAY_MIN = {seconds}\n")

    def next(self, wanted: str) -> str:
        """Return the next command, which has this text."""
        command = self._left.pop(0)
        assert wanted in command
        return command

    def leave_out(self, until: str) -> None:
        while until not in self._left[0]:
            del self._left[0]

    def run(self, wanted: str) -> str:
        return self.copy.run(self.next(wanted))

    def start(self, wanted: str) -> Running:
        return self.again(self.next(wanted))

    def again(self, command: str) -> Running:
        running = self.copy.start(command)
        self._stack.callback(running.kill)
        return running


def test_commands_of_an_operator_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A process that starts warm is of the machine on which the tests began.
    monkeypatch.setattr(warm, "enabled", False)
    # They are fetched while there is a network.
    for name in ("consul", "ip", "redis-server"):
        program(name)
    with ExitStack() as stack:
        operator = Operator(tmp_path, stack)
        all_cores(operator)
        refused: OSError | None = None
        try:
            machines = stack.enter_context(two_machines())
        except OSError as error:
            refused = error
            operator.leave_out(until="--profile")
        else:
            several_machines(operator, *machines)
        operator.next("--profile")
        with pytest.raises(IndexError):
            operator.next("")
    if refused is not None:
        pytest.skip(f"several machines need network namespaces, and this user has none: {refused}")


def assert_exact(web: MockWeb, asked: list[Entry], jobs: list[Path]) -> None:
    """``asked`` are the requests to the web, and to those of other machines that are like it."""
    assert reachable(web.graph, web.seeds()).differences(asked) == []
    assert repeated(asked) == []
    assert impolite(web, FAST, asked) == []
    assert not_archived(asked, jobs, exactly=True) == []
    assert [frontier_view(job)["queued"] for job in jobs] == [0] * len(jobs)


def all_cores(operator: Operator) -> None:
    """2 processes, then 1, then 3 with a copy of the folder."""
    with MockWeb(graph=GRAPH) as web:
        operator.begin(web, web.seeds())

        def go_on(crawl: Running) -> None:
            goal = len(web.log()) + 30
            crawl.until(lambda: len(web.log()) > goal)

        crawl = operator.start("PROCESSES=2")
        go_on(crawl)
        crawl.until(lambda: "pages by 2 processes |" in crawl.log)
        assert "pages/s" in operator.run("scrapy frontier")
        assert "p2" in operator.run("scrapy ring")
        (operator.copy.places[METRICS],) = re.findall(r"metrics of all: (\S+)", crawl.log)
        found = re.search(r"^krowl_frontier_done_total (.*)$", operator.run("curl"), re.MULTILINE)
        assert found is not None
        assert float(found[1]) > 0
        (page,) = re.findall(r"page of all: ([^\s;]+)", crawl.log)
        with urllib.request.urlopen(f"{page}api/v1/nodes") as answer:
            assert [node["node"] for node in json.load(answer)] == ["p1", "p2"]
        job = operator.folder / "jobs" / "cores"
        process = int((job / "p1" / "lock").read_text())
        # The Ctrl-C of a terminal does not reach it besides.
        assert os.getpgid(process) != os.getpgid(crawl.process.pid)
        crawl.interrupt()
        assert crawl.log.count("ended (stopped)") == 1
        crawl = operator.start("PROCESSES=1")
        go_on(crawl)
        crawl.interrupt()
        operator.run("cp -a")
        operator.delay(FAST)
        assert "ended (finished)" in operator.run("PROCESSES=3")
        assert_exact(web, web.log(), sorted((operator.folder / "jobs" / "copy").glob("p*")))


def start_servers(operator: Operator, stack: ExitStack, first: Machine, second: Machine) -> None:
    """Start Consul on the first machine, and a Redis on each."""
    folder = operator.folder
    consul = stack.enter_context(consul_agent(folder / "consul", host=FIRST))
    operator.copy.places[CONSUL] = consul.url
    founded = f"{consul.url}/v1/kv/krowlspider/krowlspider/founded"
    # As if the cluster were old: leases begin at once.
    urllib.request.urlopen(urllib.request.Request(founded, b"1", method="PUT")).close()
    # Without a password it serves its own machine alone.
    open_to_all = ("--protected-mode", "no")
    for node, machine, host in (("a", first, FIRST), ("b", second, SECOND)):
        server = redis_server(folder / f"server-{node}", *open_to_all, host=host)
        redis = stack.enter_context(machine.has(server))
        (folder / f"redis-{node}").write_text(redis.url)


def several_machines(operator: Operator, first: Machine, second: Machine) -> None:
    """A node of the second machine joins and leaves; each is restarted; all are stopped and go on
    elsewhere. Each machine reaches a web of its own, and the servers of the cluster."""
    folder = operator.folder
    with ExitStack() as stack:
        stack.enter_context(first)
        web = stack.enter_context(MockWeb(graph=GRAPH))
        other_web = stack.enter_context(second.has(MockWeb(graph=GRAPH, port=web.port)))
        operator.begin(web, web.seeds())
        start_servers(operator, stack, first, second)

        def go_on(node: Running) -> None:
            """Wait until the node has done some pages."""
            done = re.compile(r"\] INFO: ([0-9,]+) pages \|")
            node.until(lambda: any(int(each) > 5 for each in done.findall(node.log)))

        def agree(node: Running) -> None:
            node.until(lambda: operator.copy.code(ring) == 0)

        a = operator.start("KROWL_NODE_ID=a")
        go_on(a)
        with second:
            b = operator.start("KROWL_NODE_ID=b")
        ring = operator.next("scrapy ring")
        agree(b)
        go_on(b)
        # Taken away, and brought back: the rolling restart of b, and then of a.
        b.interrupt()
        with second:
            b = operator.again(b.command)
        go_on(b)
        agree(b)
        a.interrupt()
        a = operator.again(a.command)
        go_on(a)
        agree(a)
        operator.run("--signal STOP")
        a.wait()
        b.wait()
        for wanted in ("jobs/snapshot-a", "jobs/snapshot-b"):
            operator.run(f"--snapshot {wanted}")
        for wanted in ("jobs/again-a", "jobs/again-b"):
            operator.run(f"scrapy frontier {wanted} --restore")
        operator.run("--signal RUNNING")
        operator.delay(FAST)
        restored = []
        for machine, node in ((first, a), (second, b)):
            with machine:
                command = node.command.replace("JOBDIR=jobs/", "JOBDIR=jobs/again-")
                restored.append(operator.again(command))
        for running in restored:
            running.wait()
        logs = web.log(), other_web.log()
        assert all(map(pages, logs))
        assert_exact(
            web, [*logs[0], *logs[1]], [folder / "jobs" / f"again-{node}" for node in "ab"]
        )
