"""The frontier keeps Gemini servers as it keeps sites of the web."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.admin.edit import forget_host
from krowlspider.frontier.hosts.host import RobotsFetch
from krowlspider.frontier.moves.chunks import decode_chunk, encode_chunk
from krowlspider.frontier.moves.transfer import Arrivals
from krowlspider.frontier.robots.fetches import RobotsFetches
from krowlspider.frontier.robots.gate import RobotsGate, Verdict
from krowlspider.frontier.store.schema import robots_key
from krowlspider.gemini.robots import read
from krowlspider.politeness.gemini import AGENTS, PrefixRules
from krowlspider.urls.canonical import Ports, authority_of, host_of
from tests.frontier.conftest import LIMITS, KeptMemoryStore, World

if TYPE_CHECKING:
    from krowlspider.frontier.hosts.host import Host

pytestmark = pytest.mark.usefixtures("gemini")

AUTHORITY = "gemini://a.test"
HOST = "a.test:1965"
PAGES = [f"{AUTHORITY}/{number}" for number in range(5)]
PRIVATE = f"{AUTHORITY}/private/1"
RULES = b"User-agent: indexer\nDisallow: /private\n"


def prefixes(body: bytes) -> PrefixRules:
    return PrefixRules(read(body, AGENTS))


def world_with_reader(node: str = "here") -> tuple[World, RobotsFetches]:
    kept = KeptMemoryStore()
    limits = replace(LIMITS, ports=Ports(["80", "1965"]))
    world = World(lambda: kept, node=node, limits=limits)
    fetches = RobotsFetches(
        world.frontier,
        agent="krowlspider",
        ttl=1000.0,
        retries=1,
        wall=lambda: world.clocks.wall,
        read_prefixes=prefixes,
    )
    return world, fetches


def fetch_of(world: World) -> RobotsFetch:
    world.add(PAGES[0])
    host = world.frontier.schedule.pop()
    assert host is not None
    assert (host.name, host.domain) == (HOST, "a.test")
    return RobotsFetch(AUTHORITY, host, f"{AUTHORITY}/robots.txt")


def hosts_of(world: World) -> list[Host]:
    return list(world.frontier.schedule.cache.hosts.values())


def verdicts(gate: RobotsGate) -> list[Verdict]:
    return [gate.verdict(AUTHORITY, url) for url in (PAGES[0], PRIVATE)]


BOTH, NONE = [Verdict.ALLOWED] * 2, [Verdict.UNREACHABLE] * 2


@pytest.mark.parametrize(
    ("status", "found"),
    [
        (20, [Verdict.ALLOWED, Verdict.DISALLOWED]),
        (51, BOTH),
        (50, BOTH),
        (10, BOTH),
        (60, BOTH),
        (41, NONE),
        (44, NONE),
    ],
)
def test_a_robots_txt_decides(status: int, found: list[Verdict]):
    """A 4x is tried again before it counts."""
    world, fetches = world_with_reader()
    fetch = fetch_of(world)
    assert fetch.source == AUTHORITY
    fetches.answered(fetch, status, RULES, None)
    tries = 1
    while fetch in fetch.host.robots.fetches:
        fetch.host.robots.fetches.remove(fetch)
        fetches.answered(fetch, status, RULES, None)
        tries += 1
    assert verdicts(fetches.gate) == found
    assert tries == {41: 2, 44: 11}.get(status, 1)
    # That of the web server of the name is another one.
    assert fetches.gate.verdict("http://a.test", "http://a.test/") is Verdict.UNKNOWN


def test_its_record_is_read_again_from_disk():
    world, fetches = world_with_reader()
    fetches.answered(fetch_of(world), 20, RULES, None)
    again = RobotsFetches(
        world.frontier,
        agent="krowlspider",
        ttl=1000.0,
        retries=1,
        wall=lambda: world.clocks.wall,
        read_prefixes=prefixes,
    )
    assert verdicts(again.gate) == [Verdict.ALLOWED, Verdict.DISALLOWED]
    assert again.gate.crawl_delay(HOST) == 0.0


@pytest.mark.parametrize(
    ("location", "waits"),
    [("/other.txt", True), ("gemini://b.test/robots.txt", True), ("http://b.test/a.txt", False)],
)
def test_a_redirect_stays_in_gemini(location: str, waits: bool):
    """One that leaves it means that there is no robots.txt."""
    world, fetches = world_with_reader()
    fetch = fetch_of(world)
    fetches.answered(fetch, 31, b"", location)
    queued = [each for host in hosts_of(world) for each in host.robots.fetches]
    assert bool(queued) is waits
    assert (fetches.gate.verdict(AUTHORITY, PRIVATE) is Verdict.ALLOWED) is not waits


def test_a_robots_txt_of_the_web_does_not_lead_to_gemini():
    world, fetches = world_with_reader()
    world.add("http://a.test/")
    host = world.frontier.schedule.pop()
    assert host is not None
    fetch = RobotsFetch("http://a.test", host, "http://a.test/robots.txt")
    fetches.answered(fetch, 301, b"", f"{AUTHORITY}/robots.txt")
    assert fetches.gate.verdict("http://a.test", "http://a.test/private") is Verdict.ALLOWED


def test_a_server_is_handed_over_with_its_robots_txt():
    """Queue, seen marks and rules arrive under its name, and a page is fetched there."""
    world, fetches = world_with_reader()
    other, theirs = world_with_reader("there")
    fetch = fetch_of(world)
    fetches.answered(fetch, 20, RULES, None)
    world.frontier.schedule.release(fetch.host, 0.25)
    world.add(*PAGES)
    arrivals = Arrivals(other.frontier, other.store, theirs.cache, other.identify, url_max=2048)
    departure, number = world.departures.begin(HOST), 0
    while (chunk := departure.chunk(number)) is not None:
        number += 1
        sent = decode_chunk(encode_chunk(chunk))
        assert arrivals.take(sent) == number
    assert sorted(other.queued(HOST)) == PAGES
    assert verdicts(theirs.gate) == [Verdict.ALLOWED, Verdict.DISALLOWED]
    assert other.add(PAGES[1]) == 0


def test_a_forgotten_server_leaves_nothing():
    world, fetches = world_with_reader()
    fetches.answered(fetch_of(world), 20, RULES, None)
    assert world.store.get(robots_key(AUTHORITY)) is not None
    world.add(*PAGES)
    world.frontier.close()
    assert forget_host(world.store, HOST, lambda: None)[0] == len(PAGES)
    assert world.store.get(robots_key(AUTHORITY)) is None


def test_the_authority_is_that_of_its_host():
    assert host_of(f"{authority_of(PAGES[0])}/") == HOST
