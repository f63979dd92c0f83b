"""The commands of docs/operations.md in order, as an operator runs them from a copied checkout.

In each part no page is missing, none is fetched twice, and none too early.
"""

from __future__ import annotations

import os
import re
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.judges import not_archived, repeated
from tests.cluster.servers import consul_agent, redis_server
from tests.commands.test_migrate import ALL, PORT, RULES, unpacked
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.mockweb.oracle import reachable
from tests.support.crawling import ROOT, frontier_view, write_seeds
from tests.support.crawls import QUICK, impolite, pages
from tests.support.debian import program
from tests.support.documented import Copy, commands

if TYPE_CHECKING:
    from tests.support.documented import Running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GRAPH = Graph(hosts=24, pages=20, seed=3, features=QUICK)
METRICS, CONSUL = "http://127.0.0.1:9410/metrics", "http://127.0.0.1:8500"
# The second machine: another address of loopback.
OTHER = "127.0.0.2"
# Delays while something is done to a crawl, and when it may come to its end.
SLOW, FAST = 5.0, 0.1


class Operator:
    """Runs the commands of the page, each once."""

    def __init__(self, folder: Path, stack: ExitStack):
        self.folder = folder
        self._stack = stack
        self._left = commands(ROOT / "docs" / "operations.md")

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

    def run(self, wanted: str) -> str:
        return self.copy.run(self.next(wanted))

    def start(self, wanted: str) -> Running:
        return self.again(self.next(wanted))

    def again(self, command: str) -> Running:
        running = self.copy.start(command)
        self._stack.callback(running.kill)
        return running


def test_commands_of_an_operator_in_order(tmp_path: Path) -> None:
    program("redis-server")
    with ExitStack() as stack:
        operator = Operator(tmp_path, stack)
        all_cores(operator)
        several_machines(operator)
        operator.next("--profile")
        upgrade(operator)
        with pytest.raises(IndexError):
            operator.next("")


def assert_exact(web: MockWeb, jobs: list[Path]) -> None:
    assert reachable(web.graph, web.seeds()).differences(web.log()) == []
    assert repeated(web.log()) == []
    assert impolite(web, FAST) == []
    assert not_archived(web.log(), jobs, exactly=True) == []
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
        (operator.copy.places[METRICS],) = re.findall(r"metrics of all: (\S+)", crawl.log)
        found = re.search(r"^krowl_frontier_done_total (.*)$", operator.run("curl"), re.MULTILINE)
        assert found is not None
        assert float(found[1]) > 0
        (page,) = re.findall(r"page of all: (\S+)", crawl.log)
        with urllib.request.urlopen(page) as answer:
            assert answer.read().decode().count('<a href="http://127.0.0.1:') == 2
        job = operator.folder / "jobs" / "cores"
        process = int((job / "p1" / "lock").read_text())
        secret = (job / "ring-secret").read_text().strip()
        assert secret not in Path(f"/proc/{process}/cmdline").read_text() + crawl.log
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
        assert_exact(web, sorted((operator.folder / "jobs" / "copy").glob("p*")))


def several_machines(operator: Operator) -> None:
    """A node joins and leaves; each is restarted; all are stopped and go on elsewhere."""
    folder = operator.folder
    with MockWeb(graph=GRAPH) as web, ExitStack() as stack:
        operator.begin(web, web.seeds())
        consul = stack.enter_context(consul_agent(folder / "consul"))
        operator.copy.places[CONSUL] = consul.url
        founded = f"{consul.url}/v1/kv/krowlspider/krowlspider/founded"
        # As if the cluster were old: leases begin at once.
        urllib.request.urlopen(urllib.request.Request(founded, b"1", method="PUT")).close()
        for node, host in (("a", ""), ("b", OTHER)):
            redis = stack.enter_context(redis_server(folder / f"server-{node}", host=host))
            (folder / f"redis-{node}").write_text(redis.url)

        def go_on(node: Running) -> None:
            """Wait until the node has done some pages."""
            done = re.compile(r"\] INFO: ([0-9,]+) pages \|")
            node.until(lambda: any(int(each) > 5 for each in done.findall(node.log)))

        def agree(node: Running) -> None:
            node.until(lambda: operator.copy.code(ring) == 0)

        a = operator.start("KROWL_NODE_ID=a")
        go_on(a)
        b = operator.start("KROWL_NODE_ID=b")
        ring = operator.next("scrapy ring")
        agree(b)
        go_on(b)
        # Taken away, and brought back: the rolling restart of b, and then of a.
        b.interrupt()
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
        restored = [
            operator.again(node.command.replace("JOBDIR=jobs/", "JOBDIR=jobs/again-"))
            for node in (a, b)
        ]
        for node in restored:
            node.wait()
        assert_exact(web, [folder / "jobs" / f"again-{node}" for node in "ab"])


def upgrade(operator: Operator) -> None:
    """Two hosts of the old folder are due, and are crawled to their end."""
    fetched = unpacked(3, operator.folder)
    operator.copy.places["jobs/default"] = "job"
    with MockWeb(spec=RULES, port=PORT) as web:
        operator.begin(web, [web.url("a.test")])
        operator.delay(FAST)
        operator.run("--migrate")
        crawl = operator.again(
            "make crawl SEEDS=seeds/example.txt CONTACT=you@example.org JOBDIR=job"
        )
        due = {url for url in ALL if "//c.test" not in url}

        def asked() -> list[str]:
            return [*fetched, *(entry.url for entry in pages(web.log()))]

        crawl.until(lambda: due <= set(asked()))
        crawl.interrupt()
        assert len(asked()) == len(set(asked()))
