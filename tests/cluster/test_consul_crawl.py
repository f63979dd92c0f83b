"""Two nodes by Consul: each URL is fetched once, by its owner, whoever comes and goes; and what would be wrong is seen."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from krowlspider.cluster.ring import Member, Ring
from krowlspider.urls.host import domain_of
from tests.cluster.judges import Run, early_ends, node_of, not_archived, repeated, too_often
from tests.cluster.nodes import Cluster
from tests.crawling import CONTACT
from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.mockweb.graph import Graph
from tests.mockweb.oracle import reachable
from tests.test_crawl import QUICK, pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.mockweb.log import Entry

GRAPH = Graph(hosts=40, pages=6, seed=3, features=QUICK)
DELAY = 0.5
ASKER = f"krowlspider/b (+{CONTACT})"


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A crawl of two nodes that is over."""
    folder = tmp_path_factory.mktemp("cluster")
    with MockWeb(graph=GRAPH) as web, Cluster(folder, web, KROWL_DELAY_MIN=DELAY) as cluster:
        cluster.start("a")
        cluster.start("b")
        cluster.wait_all()
        yield cluster


def test_two_nodes_fetch_each_url_once_by_its_owner_and_both_know_the_end(over: Cluster) -> None:
    assert over.faults(delay=DELAY) == []
    ring = Ring([Member("a"), Member("b")])
    askers = {(ring.owner(domain_of(entry.host)), node_of(entry)) for entry in over.web.log()}
    assert askers == {("a", "a"), ("b", "b")}
    assert over.lag("p99") < 250


def log_of(cluster: Cluster) -> list[Entry]:
    """What the web was asked for, to be changed."""
    return [dataclasses.replace(entry) for entry in cluster.web.log()]


def test_a_page_that_nobody_fetched_is_missed(over: Cluster) -> None:
    lost = pages(log_of(over))[-1]
    left = [entry for entry in log_of(over) if entry.url != lost.url]
    said = reachable(over.web.graph, over.web.seeds()).differences(left, at_least=True)
    assert said == [f"page {lost.url}: 0 requests instead of 1"]
    jobs = [over.folder / node for node in over.redis]
    assert not_archived(left, jobs, exactly=True) == [f"archived, not fetched: {lost.url}"]


def test_a_page_that_two_nodes_fetched_is_counted(over: Cluster) -> None:
    entries = log_of(over)
    again = dataclasses.replace(pages(entries)[0], start=entries[-1].end + 60, ua=ASKER)
    assert repeated([*entries, again]) == [again]
    assert too_often([*entries, again], 1) == []
    said = f"1 pages fetched again instead of 0: {again.url} by b"
    assert too_often([*entries, again], 0) == [said]


def test_two_nodes_at_one_host_at_once_or_too_soon_one_after_the_other_are_seen(
    over: Cluster,
) -> None:
    entries = log_of(over)
    last = entries[-1]
    for after, said in ((-0.0001, "overlap"), (DELAY - 0.1, "gap of 0.4")):
        start = last.end + after
        other = dataclasses.replace(last, start=start, end=start + 1, ua=ASKER, conn=-1)
        assert [line for line in violations([*entries, other], min_delay=DELAY) if said in line]


def test_a_page_fetched_after_a_node_has_finished_is_an_early_end(over: Cluster) -> None:
    entries = log_of(over)
    first = min(run.over_at or 0 for run in over.runs)
    assert 0 < first - entries[-1].end < 60
    late = dataclasses.replace(entries[-1], start=first + 0.01)
    (said,) = early_ends([*entries, late], over.runs)
    assert said.startswith(late.url)
    closed = [Run("a", over.runs[0].crawl, "nodes_left")]
    assert early_ends(entries, closed) == ["node a: nodes_left", "no node has finished"]


def test_an_answer_that_no_node_archived_is_named(over: Cluster) -> None:
    jobs = [over.folder / node for node in over.redis]
    other = dataclasses.replace(pages(log_of(over))[0], path="/never", sha1="0" * 40)
    for exactly in (True, False):
        said = not_archived([*log_of(over), other], jobs, exactly=exactly)
        assert said == [f"not archived: {other.url}"]
    (first, *_) = jobs
    assert not_archived(log_of(over), [first], exactly=False) != []


def test_what_is_left_in_an_inbox_is_a_fault(over: Cluster) -> None:
    with Redis.from_url(over.redis["b"].url) as client:
        client.lpush("broad:requests:processing:b", b"{}")
        try:
            assert "b: 1 left in the broad:requests:processing:b" in over.faults(delay=DELAY)
        finally:
            client.delete("broad:requests:processing:b")


def test_a_node_that_comes_takes_its_part_and_one_that_leaves_hands_over_all(
    tmp_path: Path,
) -> None:
    graph = Graph(hosts=60, pages=15, seed=5, features=QUICK)
    with MockWeb(graph=graph) as web, Cluster(tmp_path, web, KROWL_DELAY_MIN=1) as cluster:
        cluster.start("a")
        cluster.go_on("a", by=100)
        cluster.start("b")
        cluster.go_on("b", by=50)
        cluster.leave("a")
        assert cluster.crew == ["b"]
        before = len(cluster.entries("a"))
        cluster.wait_all()
        assert len(cluster.entries("a")) == before
        assert cluster.faults(delay=1) == []
