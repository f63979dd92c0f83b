"""Each way in which nodes and their servers come, go and hang: the crawl is exact and ends.

Of each: no page is missing, none is fetched twice (after a kill or a freeze: but what was in flight
or not committed, and what a node had done that is forgotten), no host is asked too soon or twice at
a time, and every process ends within 30 s after the last page. Real processes go the same ways in
``test_chaos_*``.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.register.port import step
from krowlspider.cluster.register.state import forget
from krowlspider.cluster.ring import live_members
from krowlspider.cluster.ring.ring import Member, Ring
from tests.cluster.churn import churn
from tests.mockweb.audit import Crowd, by_address
from tests.support.memory_servers import MemoryAgent
from tests.support.simulated_cluster import (
    NAME,
    ClusterWeb,
    Process,
    SimulatedCluster,
    simulated_time,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

DELAY = 5.0


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulated_time():
        yield


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """Return a cluster whose crawl takes two minutes."""
    return SimulatedCluster(ClusterWeb(24, 20), tmp_path, {"KROWL_DELAY_MIN": DELAY})


def begin(cluster: SimulatedCluster, *nodes: str) -> None:
    """Start nodes, and crawl until each has fetched some pages."""
    for node in nodes:
        cluster.start(node)
    cluster.until(lambda: all(len(cluster.pages(node)) > 10 for node in nodes))


def ended(cluster: SimulatedCluster, node: str) -> Process:
    """Run until a node has ended, and return its process."""
    cluster.until(lambda: node not in cluster.running, 60)
    return next(each for each in reversed(cluster.ended) if each.name == node)


def fetched_by(cluster: SimulatedCluster, node: str) -> list[str]:
    return [entry.url for entry in cluster.pages(node)]


def test_two_nodes_from_the_start(cluster: SimulatedCluster) -> None:
    begin(cluster, "a", "b")
    cluster.finish()
    assert cluster.faults() == []


def test_node_joins(cluster: SimulatedCluster) -> None:
    begin(cluster, "a")
    begin(cluster, "b")
    cluster.finish()
    assert cluster.faults() == []


@pytest.mark.parametrize("killed", ["", "a", "b"])
def test_node_that_joins_takes_its_domains_in_steps(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """Until its step comes, a domain is fetched by the node that had it, and by the new one soon
    after. A kill between two steps changes nothing of that."""
    # A two-hundredth of the domains in each step.
    monkeypatch.setattr(live_members, "FIRST_URLS", 1)
    monkeypatch.setattr(live_members, "_CHANGE_MAX", 1.0)
    cluster.start("a")
    cluster.until(lambda: len(cluster.pages("a")) > 60)
    cluster.start("b")
    cluster.until(lambda: bool(cluster.pages("b")))
    begun = cluster.now
    if killed:
        cluster.kill(killed)
        cluster.run_for(5)
        cluster.start(killed)
    cluster.finish()
    assert cluster.faults() == []
    last = {entry.host: entry.start for entry in cluster.pages("a")}
    first: dict[str, float] = {}
    for entry in cluster.pages("b"):
        first.setdefault(entry.host, entry.start)
    late = [host for host in first if last.get(host, 0) > begun]
    assert len(late) >= 3
    if not killed:
        assert max(first[host] - last[host] for host in late) < 2 * DELAY


def test_node_leaves(cluster: SimulatedCluster) -> None:
    begin(cluster, "a", "b")
    cluster.stop("b")
    assert ended(cluster, "b").reason == "shutdown"
    cluster.finish()
    assert cluster.faults() == []


@pytest.mark.parametrize("trouble", ["", "a killed", "b killed", "consul gone"])
def test_node_that_leaves_gives_its_domains_away_in_steps(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """Until its step comes, a domain is fetched by the node that leaves, and by another one soon
    after. Trouble between two steps changes nothing of that."""
    monkeypatch.setattr(live_members, "FIRST_URLS", 1)
    monkeypatch.setattr(live_members, "_CHANGE_MAX", 1.0)
    begin(cluster, "a", "b", *(["c"] if "killed" in trouble else []))
    begun = cluster.now
    cluster.stop("b")
    cluster.run_for(6)
    if "killed" in trouble:
        cluster.kill(trouble[0])
        cluster.run_for(5)
        cluster.start(trouble[0])
    elif trouble:
        cluster.consul.is_down = True
        cluster.run_for(30)
        # The node that leaves is back first, so the other one seems to be dead.
        cluster.freeze("a")
        cluster.consul.is_down = False
        cluster.run_for(6)
        cluster.thaw("a")
    if trouble != "b killed":
        assert ended(cluster, "b").reason == "shutdown"
    cluster.finish()
    assert cluster.faults() == []
    last = {entry.host: entry.start for entry in cluster.pages("b")}
    first: dict[str, float] = {}
    for entry in cluster.pages("a"):
        if last.get(entry.host, inf) < entry.start:
            first.setdefault(entry.host, entry.start)
    late = [host for host in first if last[host] > begun + 1.5 * DELAY]
    if not trouble:
        assert len(late) >= 3
        assert max(first[host] - last[host] for host in late) < 2 * DELAY


def test_node_is_frozen_while_it_leaves(cluster: SimulatedCluster) -> None:
    """Its lease ends meanwhile, so it tells the others once more that it leaves."""
    begin(cluster, "a", "b")
    cluster.stop("b")
    cluster.run_for(1)
    cluster.freeze("b")
    cluster.run_for(20)
    cluster.thaw("b")
    assert ended(cluster, "b").reason == "shutdown"
    assert cluster.pending_nodes == ["a"]
    cluster.finish()
    assert cluster.faults() == []


def test_node_leaves_and_returns_at_once(cluster: SimulatedCluster) -> None:
    begin(cluster, "a", "b")
    for _ in range(2):
        cluster.stop("b")
        ended(cluster, "b")
        cluster.start("b")
    cluster.until(lambda: cluster.web.log[-1].ua == "b")
    cluster.finish()
    assert cluster.faults() == []


def test_killed_node_returns_after_a_minute(cluster: SimulatedCluster) -> None:
    """Its domains have waited for it, so only what was in flight is fetched again."""
    begin(cluster, "a", "b")
    cluster.kill("b")
    cluster.run_for(60)
    cluster.start("b")
    cluster.finish()
    assert cluster.faults() == []


def test_killed_node_is_forgotten(cluster: SimulatedCluster) -> None:
    """What only its disk had is lost, and nothing else."""
    begin(cluster, "a", "b")
    fetched = fetched_by(cluster, "b")
    cluster.kill("b")
    cluster.run_for(60)
    asyncio.run(forget(MemoryAgent(cluster.consul, lambda: True), NAME, "b"))
    cluster.finish()
    faults = cluster.faults(repeats=fetched)
    ring = Ring([Member("a"), Member("b")])
    lost = [fault for fault in faults if fault.startswith("missing: ")]
    assert faults == lost
    assert {ring.owner(fault.split("/")[2]) for fault in lost} <= {"b"}
    assert len(lost) < len(cluster.web.all_urls()) / 4


@pytest.mark.parametrize("trouble", ["frozen", "gone", "emptied"])
def test_redis_in_trouble(cluster: SimulatedCluster, trouble: str) -> None:
    begin(cluster, "a", "b")
    redis = cluster.redis[cluster.redis_url("b")]
    if trouble == "frozen":
        redis.freeze()
        cluster.run_for(60)
        redis.thaw()
    else:
        redis.is_down = True
        cluster.run_for(150)
        redis.is_down = False
        if trouble == "emptied":
            redis.wipe()
    cluster.finish()
    assert cluster.faults() == []


def test_consul_gone(cluster: SimulatedCluster) -> None:
    begin(cluster, "a", "b")
    cluster.consul.is_down = True
    cluster.run_for(20)
    before = len(cluster.web.log)
    cluster.run_for(40)
    assert len(cluster.web.log) == before
    cluster.consul.is_down = False
    cluster.finish()
    assert cluster.faults() == []


def test_consul_wiped_while_nodes_run(cluster: SimulatedCluster) -> None:
    """A third node joins in the empty register."""
    begin(cluster, "a", "b")
    cluster.consul.wipe()
    cluster.start("c")
    cluster.until(lambda: len(cluster.pages("c")) > 10)
    cluster.finish()
    assert cluster.faults() == []


def test_consul_wiped_while_nodes_are_stopped(cluster: SimulatedCluster) -> None:
    begin(cluster, "a", "b")
    cluster.kill("a")
    cluster.kill("b")
    cluster.consul.wipe()
    cluster.run_for(10)
    cluster.start("a")
    cluster.start("b")
    cluster.finish()
    assert cluster.faults() == []


def test_same_id_and_same_redis_are_refused(cluster: SimulatedCluster) -> None:
    begin(cluster, "a", "b")
    cluster.ids["twin"] = "a"
    cluster.redis_urls["thief"] = cluster.redis_url("a")
    for name, reason in (("twin", "is in use"), ("thief", "has the same REDIS_URL")):
        cluster.start(name)
        process = ended(cluster, name)
        assert process.reason == "refused"
        assert reason in process.error
        cluster.ended.remove(process)
    cluster.finish()
    assert cluster.faults() == []


def test_lease_may_end_between_two_looks_at_it(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat of the dead process is released, and its key was read just before."""
    begin(cluster, "a", "b")
    cluster.kill("b")
    cluster.start("b")
    cluster.run_for(5)
    get = MemoryAgent.get

    async def get_late(agent: MemoryAgent, key: str) -> object:
        if key.endswith("/beats/b"):
            beat = cluster.consul.get(key)
            cluster.consul.transact([step("unlock", key, beat.value, Session=beat.session)])
        return await get(agent, key)

    monkeypatch.setattr(MemoryAgent, "get", get_late)
    cluster.run_for(5)
    monkeypatch.undo()
    cluster.finish()
    assert cluster.faults() == []


def test_wall_clock_an_hour_ahead(cluster: SimulatedCluster) -> None:
    """Hosts move to that node and back."""
    cluster.skew["b"] = 3600.0
    begin(cluster, "a")
    begin(cluster, "b")
    cluster.stop("b")
    cluster.finish()
    assert cluster.faults() == []


def test_node_leaves_while_hosts_wait_for_a_full_address(tmp_path: Path) -> None:
    web = ClusterWeb(24, 12, shared_address="192.0.2.1")
    settings = {"KROWL_DELAY_MIN": 0.5, "KROWL_IP_CONCURRENCY": 2, "KROWL_IP_DELAY_MIN": 0}
    cluster = SimulatedCluster(web, tmp_path, settings)
    begin(cluster, "a", "b")
    cluster.stop("a")
    assert ended(cluster, "a").reason == "shutdown"
    begin(cluster, "c")
    cluster.finish()
    assert cluster.faults(crowds=[Crowd("address", by_address, 2)]) == []


def test_robots_txt_on_the_hosts_of_other_nodes(tmp_path: Path) -> None:
    web = ClusterWeb(24, 20, redirecting=2)
    cluster = SimulatedCluster(web, tmp_path, {"KROWL_DELAY_MIN": DELAY})
    begin(cluster, "a", "b")
    begin(cluster, "c")
    cluster.stop("a")
    cluster.finish()
    assert cluster.faults() == []


def test_node_frozen_for_75_seconds(cluster: SimulatedCluster) -> None:
    """Its lease has ended meanwhile, and its domains have waited for it."""
    begin(cluster, "a", "b")
    cluster.freeze("b")
    cluster.run_for(75)
    cluster.thaw("b")
    cluster.finish()
    assert cluster.faults() == []


def test_all_nodes_killed_at_once(cluster: SimulatedCluster) -> None:
    begin(cluster, "a", "b", "c")
    for node in "abc":
        cluster.kill(node)
    cluster.run_for(20)
    for node in "cba":
        cluster.start(node)
    cluster.finish()
    assert cluster.faults() == []


@pytest.mark.parametrize("killed", ["sender", "receiver"])
def test_killed_in_mid_hand_over(cluster: SimulatedCluster, killed: str) -> None:
    """The first chunks are in the receiver's Redis."""
    begin(cluster, "a", "b")
    cluster.start("c")
    inbox = cluster.redis[cluster.redis_url("c")]
    cluster.until(lambda: inbox.pushed["broad:hosts"] > 0, 60)
    node = "a" if killed == "sender" else "c"
    cluster.kill(node)
    cluster.run_for(10)
    cluster.start(node)
    cluster.finish()
    assert cluster.faults() == []


@pytest.mark.parametrize("seed", range(2))
def test_ten_minutes_of_random_churn(tmp_path: Path, seed: int) -> None:
    """``python -m tests.cluster.churn`` runs more seeds."""
    assert churn(seed, tmp_path).faults() == []
