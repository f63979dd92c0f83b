"""A robots.txt on another node's host is fetched by that node: more nodes reach the same pages."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import wraps
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.transport.posts import decode_robots, encode_answer
from krowlspider.frontier.robots.fetches import ASK_AGAIN, ASKS_MAX
from krowlspider.politeness.robots import RobotsRecord, Ruling
from tests.mockweb.audit import violations
from tests.support.simulated_nodes import SimulatedNodes
from tests.support.simulation import Answer, Web

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SITES = 24
RULES = b"User-agent: *\nDisallow: /private\n"
PATHS = ("/", "/more", "/private")
RULES_FILE = "/files/rules.txt"


def in_loop(test: Callable[..., None]) -> Callable[..., None]:
    """Return a test that runs inside an event loop."""

    @wraps(test)
    def run(**given: object) -> None:
        async def main() -> None:
            test(**given)

        asyncio.run(main())

    return run


def name_of(number: int) -> str:
    return f"site{number}.test"


class RedirectingWeb(Web):
    """Sites whose robots.txt is found along a way: ``way`` returns the next site, or None.

    The way leads to ``file`` of each site.
    """

    def __init__(self, way: Callable[[int], int | None], file: str = "/robots.txt") -> None:
        super().__init__()
        self._way = way
        self._file = file

    def answer(self, host: str, path: str, now: float) -> Answer:
        if path not in {"/robots.txt", self._file}:
            return Answer(0.05)
        to = self._way(int(host.removeprefix("site").removesuffix(".test")))
        if to is None:
            return Answer(0.05, body=RULES)
        return Answer(0.05, 301, location=f"http://{name_of(to)}{self._file}")

    def address(self, host: str) -> str:
        number = int(host.removeprefix("site").removesuffix(".test"))
        return f"192.0.{number % 200}.{number // 200}"

    def links(self, host: str, path: str) -> list[str]:
        return []


def to_last(number: int) -> int | None:
    """Lead through five redirects to every sixth site."""
    return None if number % 6 == 5 else number + 1


def crawl(folder: Path, web: Web, count: int, sites: int = SITES) -> SimulatedNodes:
    nodes = SimulatedNodes(web, count, folder)
    nodes.seed(f"http://{name_of(site)}{path}" for site in range(sites) for path in PATHS)
    return nodes


def fetched(web: Web) -> list[tuple[str, str]]:
    return sorted((e.host, e.path) for e in web.log if e.path not in {"/robots.txt", RULES_FILE})


ALL = sorted((name_of(site), path) for site in range(SITES) for path in ("/", "/more"))


@pytest.mark.parametrize("count", [1, 2, 3])
@in_loop
def test_nodes_reach_what_one_reaches(tmp_path: Path, count: int) -> None:
    """Five redirects lead back and forth between the owners."""
    web = RedirectingWeb(to_last)
    nodes = crawl(tmp_path, web, count)
    nodes.run_for(20)
    assert fetched(web) == ALL
    assert violations(web.log, min_delay=lambda _: 0.25) == []
    robots = Counter(entry.host for entry in web.log if entry.path == "/robots.txt")
    assert max(robots.values()) <= 2 * count
    for node in nodes.nodes.values():
        assert (node.job.robots_fetches.waiting, node.job.robots_fetches.asked) == (0, 0)


@pytest.mark.parametrize("count", [1, 2])
@in_loop
def test_nodes_follow_robots_redirects_to_txt_files(tmp_path: Path, count: int) -> None:
    web = RedirectingWeb(lambda number: 0 if number else None, RULES_FILE)
    nodes = crawl(tmp_path, web, count)
    nodes.run_for(20)
    assert fetched(web) == ALL
    assert violations(web.log, min_delay=lambda _: 0.25) == []
    assert (name_of(0), RULES_FILE) in {(entry.host, entry.path) for entry in web.log}


@in_loop
def test_frozen_owner_makes_robots_unreachable_and_loses_nothing(tmp_path: Path) -> None:
    web = RedirectingWeb(to_last)
    nodes = crawl(tmp_path, web, 2)
    nodes.frozen = {"b"}
    nodes.run_for(ASK_AGAIN * (ASKS_MAX + 1), step=5)
    a = nodes.nodes["a"].job
    deferred = a.frontier.deferred_queued
    assert 0 < deferred == a.frontier.queued
    assert a.robots_fetches.waiting == 0
    nodes.frozen = set()
    # The next round tries them again.
    nodes.run_for(3600, step=20)
    assert fetched(web) == ALL


@in_loop
def test_robots_at_a_dead_owner_wait_for_it(tmp_path: Path) -> None:
    """They do not count as unreachable, because the domains of a dead node wait for it too."""
    web = RedirectingWeb(to_last)
    nodes = crawl(tmp_path, web, 2)
    nodes.frozen = nodes.dead = {"b"}
    nodes.run_for(ASK_AGAIN * (ASKS_MAX + 2), step=5)
    a = nodes.nodes["a"].job
    assert a.frontier.deferred_queued == 0
    assert a.robots_fetches.waiting > 0
    nodes.frozen = nodes.dead = set()
    nodes.run_for(3 * ASK_AGAIN, step=1)
    assert fetched(web) == ALL


@in_loop
def test_asks_for_one_victim_are_bounded(tmp_path: Path) -> None:
    """300 hosts redirect to a robots.txt of one host: it is asked for once."""
    web = RedirectingWeb(lambda number: 0 if number else None)
    nodes = crawl(tmp_path, web, 2, sites=300)
    owner = nodes.ring.owner(name_of(0))
    nodes.run_for(20)
    assert len([entry for entry in web.log if (entry.host, entry.path) == VICTIM]) <= 2
    asks = [data for name in nodes.nodes if name != owner for data in nodes.sent[name]]
    assert len(asks) == 1


VICTIM = (name_of(0), "/robots.txt")


@in_loop
def test_forged_answer_decides_nothing(tmp_path: Path) -> None:
    """Only who was asked knows the number of the ask."""
    web = RedirectingWeb(to_last)
    nodes = crawl(tmp_path, web, 2)
    nodes.frozen = {"b"}
    nodes.run_for(10)
    record = RobotsRecord(Ruling.ALLOW_ALL.value, 0.0, 1000.0, 404, b"")
    before = nodes.nodes["a"].job.robots_fetches.waiting
    assert before
    for number in range(100):
        nodes.take("a", encode_answer(number, record, None, 0.0))
    assert nodes.nodes["a"].job.robots_fetches.waiting == before


@in_loop
def test_messages_that_arrive_twice_change_nothing(tmp_path: Path) -> None:
    web = RedirectingWeb(to_last)
    nodes = crawl(tmp_path, web, 2)
    take = nodes.take

    def take_twice(name: str, data: bytes) -> None:
        assert decode_robots(data)
        take(name, data)
        take(name, data)

    nodes.take = take_twice  # type: ignore[method-assign]
    nodes.run_for(20)
    assert fetched(web) == ALL
