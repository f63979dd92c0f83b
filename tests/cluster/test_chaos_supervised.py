"""Supervised nodes whose processes are killed, and whose Redis servers freeze, die or fill up."""

from __future__ import annotations

import random
import signal
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from krowlspider.urls.canonical import domain_of
from tests.cluster.register_nodes import end_session, sessions
from tests.cluster.servers import Server
from tests.cluster.test_supervised_nodes import (
    CLUSTER,
    NODES,
    RING,
    Servers,
    crawl_at,
    servers,
    servers_in,
    site_of,
)
from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.mockweb.graph import Graph
from tests.mockweb.oracle import identity, reachable
from tests.support.crawling import CONTACT, Crawl, frontier_view
from tests.support.crawls import QUICK, page, pages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mockweb.log import Entry

__all__ = ["servers"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

GRAPH = Graph(hosts=80, pages=20, seed=11, features=QUICK)
DELAY = 0.5
SETTINGS = {"KROWL_DELAY_MIN": DELAY, "KROWL_COMMIT_INTERVAL": 0.1}


def asked_by_one_process_each(entries: list[Entry], agents: dict[str, str]) -> bool:
    return all(
        entry.ua == agents[RING.owner(domain_of(entry.host))] for entry in entries if entry.ua
    )


def died(node: str, servers: Servers) -> None:
    """End its lease, as a supervisor does."""
    end_session(servers.register, sessions(servers.register, CLUSTER)[node])


def agent_of(node: str) -> str:
    return f"krowlspider/{node} (+{{contact}})"


def test_killed_and_restarted_processes_lose_nothing(tmp_path: Path, servers: Servers) -> None:
    chance = random.Random(3)
    with MockWeb(graph=GRAPH) as web:
        expected = reachable(web.graph, web.seeds())

        def start(node: str):  # type: ignore[no-untyped-def]
            settings = {**SETTINGS, "USER_AGENT": agent_of(node)}
            return crawl_at(node, servers, tmp_path, web.seeds(), **settings).start()

        crawls = {node: start(node) for node in NODES}
        for _ in range(4):
            node = chance.choice(NODES)
            goal = len(web.log()) + chance.randrange(20, 200)
            crawls[node].wait_until(lambda goal=goal: len(web.log()) > goal)  # type: ignore[misc]
            crawls[node].kill()
            died(node, servers)
            crawls[node] = start(node)
        for crawl in crawls.values():
            crawl.wait()
            assert frontier_view(crawl.jobdir)["queued"] == 0
        entries = web.log()
        assert expected.differences(entries, at_least=True) == []
        assert violations(entries, min_delay=DELAY) == []
        agents = {node: agent_of(node).format(contact=CONTACT) for node in NODES}
        assert asked_by_one_process_each(entries, agents)
        asked = [identity(entry.url) for entry in pages(entries)]
        # What was in flight or not committed at each of four deaths: 80 hosts, a request each, and
        # what a second brings.
        assert len(asked) - len(set(asked)) <= 4 * 2 * GRAPH.hosts


FOUND = 300


# What is done to the other node's Redis, and undone.
TROUBLES: dict[str, tuple[Callable[[Server], object], Callable[[Server], object]]] = {
    "frozen": (Server.freeze, Server.thaw),
    "killed": (Server.kill, Server.start),
    "full": (
        lambda server: commanded(server, "CONFIG", "SET", "maxmemory", "1"),
        lambda server: commanded(server, "CONFIG", "SET", "maxmemory", "0"),
    ),
    "read-only": (
        # Of a master that is not there.
        lambda server: commanded(server, "REPLICAOF", "127.0.0.1", "1"),
        lambda server: commanded(server, "REPLICAOF", "NO", "ONE"),
    ),
}


def commanded(server: Server, *command: str) -> None:
    with Redis.from_url(server.url) as client:
        client.execute_command(*command)


def test_urls_of_another_node_survive_outages(tmp_path: Path) -> None:
    """Each page of one node links to a page of the other that nothing else links to, so a lost
    message is a missing page."""
    ours, theirs = site_of("a"), site_of("b")
    body = '<a href="/{}">on</a><a href="http://{}:{{port}}/found/{}">found</a>'
    chain = [page(f"/{n}", body.format(n + 1, theirs, n), host=ours) for n in range(FOUND)]
    with (
        servers_in(tmp_path) as servers,
        MockWeb(spec=[*chain, page("^/", "the end")]) as web,
    ):
        other = servers.redis["b"]

        def start(node: str) -> Crawl:
            delay = {"KROWL_DELAY_MIN": DELAY / 5, "KROWL_COMMIT_INTERVAL": 0.1}
            return crawl_at(node, servers, tmp_path, [web.url(ours, "/0")], **delay).start()

        def fetched(site: str) -> list[str]:
            return [entry.path for entry in pages(web.log()) if entry.host.startswith(site)]

        def wait_for(site: str, more: int) -> None:
            goal = len(fetched(site)) + more
            crawls["a"].wait_until(lambda: len(fetched(site)) >= goal)

        crawls = {node: start(node) for node in NODES}
        for begin, end in TROUBLES.values():
            wait_for(theirs, 10)
            begin(other)
            wait_for(ours, 30)
            end(other)
        wait_for(theirs, 10)
        crawls["b"].kill()
        died("b", servers)
        wait_for(ours, 30)
        crawls["b"] = start("b")
        for crawl in crawls.values():
            crawl.wait()
            assert crawl.stats["finish_reason"] == "finished"
            assert crawl.stats["krowl/loop/lag_p99_ms"] < 250
        for kind in ("down", "full", "readonly"):
            assert crawls["a"].stats[f"krowl/cluster/failed_count/{kind}"] > 0
        found = [path for path in fetched(theirs) if path != "/"]
        assert set(found) == {f"/found/{n}" for n in range(FOUND)}
        # In flight or not committed when the node died.
        assert len(found) - FOUND <= 20
        assert violations(web.log(), min_delay=DELAY / 5) == []


def test_power_cut_of_a_redis_loses_no_url(tmp_path: Path) -> None:
    """A Redis without any file dies with messages that its frozen node has not taken. Nothing else
    links to their URLs, and each is fetched exactly once."""
    ours, theirs = site_of("a"), site_of("b")
    body = '<a href="/{}">on</a><a href="http://{}:{{port}}/found/{}">found</a>'
    chain = [page(f"/{n}", body.format(n + 1, theirs, n), host=ours) for n in range(FOUND)]
    with (
        servers_in(tmp_path, "--appendonly", "no") as servers,
        MockWeb(spec=[*chain, page("^/", "the end")]) as web,
    ):
        other = servers.redis["b"]
        delay = {"KROWL_DELAY_MIN": DELAY / 5, "KROWL_COMMIT_INTERVAL": 0.1}
        crawls = {
            node: crawl_at(node, servers, tmp_path, [web.url(ours, "/0")], **delay).start()
            for node in NODES
        }

        def fetched(site: str) -> list[str]:
            return [entry.path for entry in pages(web.log()) if entry.host.startswith(site)]

        crawls["a"].wait_until(lambda: len(fetched(theirs)) > 10)
        crawls["b"].process.send_signal(signal.SIGSTOP)
        goal = len(fetched(ours)) + 30
        crawls["a"].wait_until(lambda: len(fetched(ours)) >= goal)
        with Redis.from_url(other.url) as client:
            assert client.llen("broad:requests") > 10
        other.kill()
        other.wipe()
        other.start()
        crawls["b"].process.send_signal(signal.SIGCONT)
        for crawl in crawls.values():
            crawl.wait()
            assert crawl.stats["finish_reason"] == "finished"
        found = [path for path in fetched(theirs) if path != "/"]
        assert sorted(found) == sorted(f"/found/{n}" for n in range(FOUND))
        assert crawls["a"].stats["krowl/cluster/again_count"] > 10
