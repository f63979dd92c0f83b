"""Two nodes by Consul: each URL is fetched once, by its owner, whoever comes and goes; and what
would be wrong is seen."""

from __future__ import annotations

import dataclasses
from itertools import count, islice
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.urls.canonical import domain_of
from tests.cluster.judges import Run, early_ends, node_of, not_archived, repeated, too_often
from tests.cluster.nodes import Cluster
from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.mockweb.graph import Graph
from tests.mockweb.oracle import reachable
from tests.support.crawling import CONTACT
from tests.support.crawls import QUICK, page, pages

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
        cluster.start_together("a", "b")
        cluster.wait_all()
        yield cluster


def test_two_nodes_fetch_each_url_once_by_its_owner(over: Cluster) -> None:
    assert over.faults(delay=DELAY) == []
    ring = Ring([Member("a"), Member("b")])
    askers = {(ring.owner(domain_of(entry.host)), node_of(entry)) for entry in over.web.log()}
    assert askers == {("a", "a"), ("b", "b")}
    assert over.lag("p99") < 250


def log_of(cluster: Cluster) -> list[Entry]:
    """What the web was asked for, to be changed."""
    return [dataclasses.replace(entry) for entry in cluster.web.log()]


def test_judges_miss_an_unfetched_page(over: Cluster) -> None:
    lost = pages(log_of(over))[-1]
    left = [entry for entry in log_of(over) if entry.url != lost.url]
    said = reachable(over.web.graph, over.web.seeds()).differences(left, at_least=True)
    assert said == [f"page {lost.url}: 0 requests instead of 1"]
    jobs = [over.folder / node for node in over.redis]
    assert not_archived(left, jobs, exactly=True) == [f"archived, not fetched: {lost.url}"]


def test_judges_count_a_page_fetched_twice(over: Cluster) -> None:
    entries = log_of(over)
    again = dataclasses.replace(pages(entries)[0], start=entries[-1].end + 60, ua=ASKER)
    assert repeated([*entries, again]) == [again]
    assert too_often([*entries, again], 1) == []
    said = f"1 pages fetched again instead of 0: {again.url} by b"
    assert too_often([*entries, again], 0) == [said]


def test_judges_see_two_nodes_at_one_host(
    over: Cluster,
) -> None:
    entries = log_of(over)
    last = entries[-1]
    for after, said in ((-0.0001, "overlap"), (DELAY - 0.1, "gap of 0.4")):
        start = last.end + after
        other = dataclasses.replace(last, start=start, end=start + 1, ua=ASKER, conn=-1)
        assert [line for line in violations([*entries, other], min_delay=DELAY) if said in line]


def test_judges_see_a_fetch_after_the_end(over: Cluster) -> None:
    entries = log_of(over)
    first = min(run.over_at or 0 for run in over.runs)
    assert 0 < first - entries[-1].end < 60
    late = dataclasses.replace(entries[-1], start=first + 0.01)
    (said,) = early_ends([*entries, late], over.runs)
    assert said.startswith(late.url)
    closed = [Run("a", over.runs[0].crawl, "nodes_left")]
    assert early_ends(entries, closed) == ["node a: nodes_left", "no node has finished"]


def test_judges_name_an_unarchived_answer(over: Cluster) -> None:
    jobs = [over.folder / node for node in over.redis]
    other = dataclasses.replace(pages(log_of(over))[0], path="/never", sha1="0" * 40)
    for exactly in (True, False):
        said = not_archived([*log_of(over), other], jobs, exactly=exactly)
        assert said == [f"not archived: {other.url}"]
    (first, *_) = jobs
    assert not_archived(log_of(over), [first], exactly=False) != []


def test_judges_see_messages_left_in_an_inbox(over: Cluster) -> None:
    with Redis.from_url(over.redis["b"].url) as client:
        client.lpush("broad:requests", b"{}")
        try:
            assert "b: 1 left in the broad:requests" in over.faults(delay=DELAY)
        finally:
            client.delete("broad:requests")


# Seconds that a host asks for: more than a hand-over takes, and much more than the crawl would wait
# by itself.
CRAWL_DELAY = 6.0
RETRY_AFTER = 8.0


def hosts_of_a(name: str) -> list[str]:
    """Three hosts that are a's until it leaves."""
    ring = Ring([Member("a"), Member("b")])
    names = (f"{name}{number}.test" for number in count())
    return list(islice((name for name in names if ring.owner(name) == "a"), 3))


def bare(host: str) -> str:
    """Without the port."""
    return host.partition(":")[0]


def test_new_owner_keeps_crawl_delay_and_retry_after(
    tmp_path: Path,
) -> None:
    slow, busy = hosts_of_a("slow"), hosts_of_a("busy")
    robots = f"User-agent: *\nCrawl-delay: {CRAWL_DELAY}\n"
    spec = [
        {"host": "^slow", "path": "/robots.txt", "body": robots},
        {"path": "/busy", "status": 503, "retry_after": f"{RETRY_AFTER:g}", "first": 1},
        page("^/", "a page"),
    ]
    with MockWeb(spec=spec) as web:
        urls = [web.url(host, path) for host in slow for path in ("/1", "/2")]
        urls += [web.url(host, path) for host in busy for path in ("/busy", "/1")]
        with Cluster(tmp_path, web, urls, KROWL_DELAY_MIN=0.1) as cluster:
            cluster.start_together("a", "b")
            cluster.until(lambda: {bare(entry.host) for entry in web.log()} == {*slow, *busy})
            cluster.until(lambda: sum(entry.status == 503 for entry in web.log()) == len(busy))
            cluster.leave("a")
            cluster.wait_all()
        entries = web.log()
        again = [web.url(host, "/busy") for host in busy]
        assert sorted(entry.url for entry in pages(entries)) == sorted([*urls, *again])
        assert {(bare(entry.host), node_of(entry)) for entry in entries} == {
            (host, node) for host in (*slow, *busy) for node in ("a", "b")
        }
        delays = dict.fromkeys(slow, CRAWL_DELAY)
        assert violations(entries, min_delay=lambda host: delays.get(bare(host), 0.1)) == []
