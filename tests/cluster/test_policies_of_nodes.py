"""Sheets of a cluster: those that one node reads again hold at all nodes, while hosts move."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.cluster.nodes import Cluster
from tests.mockweb import MockWeb
from tests.support.crawls import ROBOTS, anchors, page

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

HOSTS = [f"h{number}.test" for number in range(30)]
# Hosts of a sheet with a limit, of which each node has some.
FEW = [f"few{number}.test" for number in range(12)]
LIMIT = 40
PAGES = 12
# Seconds: about 40 requests a second.
DELAY = 0.7
# Seconds in which a request that was sent before an order may reach the web.
UNDER_WAY = 2.0


def sheet(exclude: str) -> str:
    few = f'name = "few"\nmatch = {FEW}\nmax_pages = {LIMIT}\nquota = "sheet"\n'
    every = f'name = "all"\nmatch = ["test,"]\nexclude = ["{exclude}"]\n'
    return f"[[sheet]]\n{every}[[sheet]]\n{few}"


def test_an_order_of_one_node_holds_at_all_while_hosts_move(tmp_path: Path) -> None:
    """The third node, with an older file, joins at that moment. A limit for a sheet as a whole
    holds for all three together."""
    links = anchors(*(f"/{kind}/{at}" for at in range(PAGES) for kind in ("yes", "no")))
    files = {node: tmp_path / f"{node}.toml" for node in "abc"}
    for node, file in files.items():
        file.write_text(sheet("/older/" if node == "c" else "/never/"))
    os.utime(files["c"], (1e9, 1e9))
    with MockWeb(spec=[ROBOTS, page("/", links), page("^/", "leaf")]) as web:
        seeds = [web.url(host) for host in HOSTS + FEW]
        with Cluster(tmp_path / "cluster", web, seeds, KROWL_DELAY_MIN=DELAY) as cluster:
            crawls = {node: cluster.start(node, KROWL_POLICIES=files[node]) for node in "ab"}
            cluster.until(lambda: all(len(cluster.entries(node)) > 40 for node in "ab"))
            crawls["c"] = cluster.start("c", KROWL_POLICIES=files["c"])
            cluster.until(lambda: "is valid" in crawls["c"].log)
            files["b"].write_text(sheet("/no/"))
            cluster.until(lambda: "sheets of this node are those of all" in crawls["b"].log)
            cluster.until(
                lambda: all("node b has given other sheets" in crawls[node].log for node in "ac")
            )
            ordered = time.monotonic()
            cluster.wait_all()
            every = cluster.entries()
    few = [entry for entry in every if entry.host.startswith("few")]
    assert len({entry.url for entry in few}) == len(few) == LIMIT
    # They may be used up before the third node joins.
    assert len({entry.ua for entry in few}) >= 2
    entries = [entry for entry in every if entry not in few]
    assert "the file of this node is older than the sheets" in crawls["c"].log
    fetched = Counter(entry.path.split("/")[1] for entry in entries)
    assert fetched["yes"] == len(HOSTS) * PAGES
    assert fetched[""] == len(HOSTS)
    refused = [entry for entry in entries if entry.path.startswith("/no/")]
    assert 0 < len(refused) < len(HOSTS) * PAGES
    assert [entry.url for entry in refused if entry.start > ordered + UNDER_WAY] == []
    assert max(Counter(entry.url for entry in entries).values()) == 1
    assert {entry.ua.split("/")[1][0] for entry in entries} == set("abc")
