"""Hooks in a cluster: the finder decides, the owner queues, and the state goes with the URL."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.cluster.judges import node_of
from tests.cluster.nodes import Cluster
from tests.mockweb import MockWeb
from tests.support.crawls import ROBOTS, anchors, page

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = [f"h{number}.test" for number in range(12)]
_NOTE = re.compile(r"NOTED (\w+) (\S+)(?: (\S+))?$", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_finder_decides_and_the_state_goes_to_the_owner(tmp_path: Path) -> None:
    """Each host has a page that the next host alone links to, and one that no filter wants."""
    with MockWeb(spec=[ROBOTS, *_roots(), page("^/(own|no)$", "leaf")]) as web:
        seeds = [web.url(host) for host in HOSTS]
        name = "tests.hooks.of_nodes.Noting"
        with Cluster(tmp_path / "cluster", web, seeds, KROWL_HOOKS=name) as cluster:
            crawls = cluster.start_together("a", "b")
            cluster.wait_all()
            entries = cluster.entries()
    assert Counter(entry.path for entry in entries) == {"/": len(HOSTS), "/own": len(HOSTS)}
    fetched = {entry.url: node_of(entry) for entry in entries}
    assert set(fetched.values()) == {"a", "b"}
    notes = [(node, *found) for node, crawl in crawls.items() for found in _NOTE.findall(crawl.log)]
    # Each at its owner, once. Before the second node has come, the first one owns all seeds.
    queued = Counter((url, node) for node, what, url, _ in notes if what == "enqueued")
    assert queued.keys() >= set(fetched.items())
    links = {each: count for each, count in queued.items() if each[0].endswith("/own")}
    assert links == {each: 1 for each in fetched.items() if each[0].endswith("/own")}
    visits = {url: (node, source) for node, what, url, source in notes if what == "visit"}
    asked = {
        (url, node) for node, what, url, _ in notes if what == "filter" and url.endswith("/own")
    }
    foreign = 0
    for url, (node, source) in visits.items():
        assert fetched[url] == node
        if url.endswith("/own"):
            # The node that fetched the page that names it was asked, and no other one.
            assert {each for each in asked if each[0] == url} == {(url, fetched[source])}
            foreign += fetched[source] != node
    assert len(visits) == 2 * len(HOSTS)
    assert foreign > 0


def _roots() -> list[dict[str, object]]:
    following = dict(zip(HOSTS, [*HOSTS[1:], HOSTS[0]], strict=True))
    return [
        page("/", anchors(f"http://{after}:{{port}}/own", f"http://{after}:{{port}}/no"), host=host)
        for host, after in following.items()
    ]
