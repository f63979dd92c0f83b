"""One robots.txt may decide for many hosts; records of a fast clock are not trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.hosts.host import RobotsFetch
from krowlspider.frontier.robots import fetches as robots_fetches
from krowlspider.frontier.robots.fetches import WAITING_AT_ONE
from krowlspider.frontier.robots.gate import Verdict
from krowlspider.politeness.robots import RobotsRecord
from tests.frontier.robots.test_gate import (
    MANY,
    PAGE,
    PRIVATE,
    RULES,
    SHARED,
    TTL,
    A,
    B,
    answer,
    crawl,
    fetch_of,
    fetches_of,
    robots_fetch_of,
)

if TYPE_CHECKING:
    from krowlspider.frontier.robots.fetches import RobotsFetches
    from tests.frontier.conftest import World

DAY = 86_400.0
LEGAL = f"{B}/legal/robots.txt"


@pytest.fixture
def robots(world: World) -> RobotsFetches:
    return fetches_of(world)


# --- a fast clock ---


@pytest.mark.parametrize("restarted", [False, True])
def test_a_robots_txt_fetched_with_a_fast_clock_is_fetched_again(
    world: World, robots: RobotsFetches, restarted: bool
) -> None:
    """Otherwise it would hold until the true time reaches the wrong one."""
    robots_fetch = robots_fetch_of(world, robots)
    world.clocks.wall += DAY
    answer(robots, robots_fetch, 200, RULES)
    assert robots.gate.verdict(A, PAGE) is Verdict.ALLOWED
    world.clocks.wall -= DAY
    if restarted:
        world.restart()
        robots = fetches_of(world)
    assert robots.gate.verdict(A, PAGE) is Verdict.UNKNOWN
    answer(robots, fetch_of(A, world.frontier.schedule.cache.get("a.test")), 200, b"")
    assert robots.gate.verdict(A, PRIVATE) is Verdict.ALLOWED
    world.clocks.pass_(TTL)
    assert robots.gate.verdict(A, PRIVATE) is Verdict.UNKNOWN


def test_a_robots_txt_fetched_with_a_fast_clock_is_not_shared(
    world: World, robots: RobotsFetches
) -> None:
    """Other hosts would not trust it either, and ask repeatedly."""
    robots_fetch = robots_fetch_of(world, robots, "http://shared.test/")
    world.clocks.wall += DAY
    answer(robots, robots_fetch, 200, RULES)
    world.clocks.wall -= DAY
    other = robots_fetch_of(world, robots)
    assert answer(robots, other, 301, location=SHARED)
    assert world.frontier.schedule.cache.get("shared.test").robots.fetches == [other]
    world.frontier.schedule.release(other.host, 0.25)
    world.frontier.schedule.cache.get("shared.test").robots.fetches.clear()
    answer(robots, other, 200, RULES)
    assert robots.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED
    assert (
        robots.gate.verdict("http://shared.test", "http://shared.test/private")
        is Verdict.DISALLOWED
    )


def test_an_extended_robots_txt_is_fetched_again_for_others(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots, "http://shared.test/")
    answer(robots, robots_fetch, 200, RULES)
    robots.cache.outlast("http://shared.test", 2 * TTL)
    world.clocks.pass_(TTL)
    assert (
        robots.gate.verdict("http://shared.test", "http://shared.test/private")
        is Verdict.DISALLOWED
    )
    assert answer(robots, other := robots_fetch_of(world, robots), 301, location=SHARED)
    assert world.frontier.schedule.cache.get("shared.test").robots.fetches == [other]


def test_setting_the_clock_back_an_hour_keeps_decisions(
    world: World, robots: RobotsFetches
) -> None:
    """A record may be extended by an hour, so this is within its bound."""
    answer(robots, robots_fetch_of(world, robots), 200, RULES)
    world.clocks.wall -= 3600.0
    assert robots.gate.verdict(A, PAGE) is Verdict.ALLOWED
    assert robots.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED


# --- redirects of many hosts, and to other paths ---


@pytest.mark.parametrize("together", [True, False])
def test_a_shared_robots_txt_is_reported_once_for_each_host(
    world: World, robots: RobotsFetches, together: bool
) -> None:
    """Both for hosts that await it and for those that find it known."""
    for part in [MANY] if together else [MANY[:1], MANY[1:]]:
        world.add(*[f"{host}/private" for host in part])
        asked = crawl(world, robots, 200)
        assert asked.count(SHARED) == (part[0] == MANY[0])
    assert sorted(robots_fetch.authority for robots_fetch, _ in world.found) == sorted(MANY)


WWW = "http://www.a.test"


def found(world: World) -> list[tuple[str, str, list[str]]]:
    """Return of each robots.txt found: authority, host of the fetch, and sitemaps."""
    return [
        (robots_fetch.authority, robots_fetch.host.name, named)
        for robots_fetch, named in world.found
    ]


@pytest.mark.parametrize(("status", "named"), [(200, ["/s.xml"]), (404, [])])
def test_a_redirect_within_a_domain_is_reported_for_both_hosts(
    world: World, robots: RobotsFetches, status: int, named: list[str]
) -> None:
    """The www. host is not asked again, so its sitemaps are reported now."""
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 301, location=f"{WWW}/robots.txt")
    world.frontier.schedule.release(robots_fetch.host, 0.25)
    world.frontier.schedule.cache.get("www.a.test").robots.fetches.clear()
    assert found(world) == []
    answer(robots, robots_fetch, status, b"Sitemap: /s.xml")
    assert found(world) == [(WWW, "a.test", named), (A, "a.test", named)]
    assert robots.gate.verdict(WWW, f"{WWW}/") is Verdict.ALLOWED


def test_a_redirect_to_another_domain_is_not_reported_for_it(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 301, location=f"{B}/robots.txt")
    world.frontier.schedule.release(robots_fetch.host, 0.25)
    world.frontier.schedule.cache.get("b.test").robots.fetches.clear()
    answer(robots, robots_fetch, 200, b"Sitemap: /s.xml")
    assert found(world) == [(A, "a.test", ["/s.xml"])]
    assert robots.gate.verdict(B, f"{B}/") is Verdict.ALLOWED


def test_a_failed_fetch_after_a_redirect_is_not_reported(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 301, location=f"{WWW}/robots.txt")
    world.frontier.schedule.release(robots_fetch.host, 0.25)
    world.frontier.schedule.cache.get("www.a.test").robots.fetches.clear()
    robots.failed(robots_fetch, final=True)
    assert robots.gate.verdict(WWW, f"{WWW}/") is Verdict.UNREACHABLE
    assert found(world) == []


@pytest.mark.parametrize("location", [
    LEGAL,
    f"{B}/files/rules.txt",
    f"{B}/other.TXT?a",
    "http://user:password@b.test/rules.txt",
])  # fmt: skip
def test_a_robots_txt_at_another_path_decides_only_for_redirects(
    world: World, robots: RobotsFetches, location: str
) -> None:
    """RFC 9309, section 2.3.1.2: it has to be followed."""
    robots_fetch = robots_fetch_of(world, robots)
    assert answer(robots, robots_fetch, 302, location=location)
    assert robots_fetch.url == location.replace("user:password@", "")
    assert world.frontier.schedule.cache.get("b.test").robots.fetches == [robots_fetch]
    world.frontier.schedule.release(robots_fetch.host, 0.25)
    world.frontier.schedule.cache.get("b.test").robots.fetches.clear()
    answer(robots, robots_fetch, 200, RULES)
    assert robots.gate.verdict(A, PAGE) is Verdict.ALLOWED
    assert robots.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED
    assert robots.gate.verdict(B, f"{B}/private") is Verdict.UNKNOWN


def test_a_user_name_in_a_redirect_of_the_same_host_is_left_out(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    assert not answer(
        robots, robots_fetch, 302, location="http://user:password@a.test/x/robots.txt"
    )
    assert robots_fetch.url == f"{A}/x/robots.txt"
    answer(robots, robots_fetch, 200, RULES)
    assert robots.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED


@pytest.mark.parametrize("location", [
    f"{B}/",
    B,
    f"{B}/?from=robots.txt",
    f"{B}/robots.txt/",
    f"{B}/login?back=/robots.txt",
    f"{B}/?url={A}/robots.txt",
    "http://user@b.test/#robots.txt",
])  # fmt: skip
def test_a_redirect_to_a_home_page_counts_as_no_robots_txt(
    world: World, robots: RobotsFetches, location: str
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    assert not answer(robots, robots_fetch, 301, location=location)
    assert world.frontier.schedule.cache.get("b.test").robots.fetches == []
    assert robots.gate.verdict(A, PRIVATE) is Verdict.ALLOWED
    assert robots.waiting == 0


# --- bounds of waiting hosts ---


def redirect_many(world: World, robots: RobotsFetches, hosts: int, place: str) -> list[bool]:
    """Redirect the robots.txt of so many hosts to ``place``; return whether each waits."""
    names = [f"http://h{number}.test/page" for number in range(hosts)]
    waits = []
    for number, robots_fetch in enumerate([robots_fetch_of(world, robots, name) for name in names]):
        waits.append(answer(robots, robots_fetch, 301, location=place.format(number)))
        if waits[-1]:
            world.frontier.schedule.release(robots_fetch.host, 0.25)
        else:
            world.frontier.schedule.give_back(robots_fetch.host)
    return waits


@pytest.mark.parametrize("place", [LEGAL, f"{B}/{{}}/robots.txt"])
def test_hosts_awaiting_one_host_are_bounded(
    world: World, robots: RobotsFetches, place: str
) -> None:
    waits = redirect_many(world, robots, WAITING_AT_ONE + 2, place)
    assert waits == [True] * WAITING_AT_ONE + [False] * 2
    assert (
        len(world.frontier.schedule.cache.get("b.test").robots.fetches)
        == robots.waiting
        == WAITING_AT_ONE
    )
    late = f"http://h{WAITING_AT_ONE}.test"
    assert robots.gate.verdict(late, f"{late}/page") is Verdict.UNREACHABLE, "its pop defers it"
    assert world.frontier.queued == WAITING_AT_ONE + 2
    # Their robots.txt may be fetched again after a while.
    world.clocks.pass_(robots_fetches.UNREACHABLE_TTL)
    assert robots.gate.verdict(late, f"{late}/page") is Verdict.UNKNOWN


def test_all_hosts_awaiting_robots_are_bounded(
    world: World, robots: RobotsFetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(robots_fetches, "WAITING_MAX", 5)
    waits = redirect_many(world, robots, 7, "http://to{}.test/robots.txt")
    assert waits == [True] * 5 + [False] * 2
    assert robots.waiting == 5


def test_a_robots_txt_of_many_hosts_is_encoded_once(
    world: World, robots: RobotsFetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = []
    encode = RobotsRecord.encode
    monkeypatch.setattr(
        RobotsRecord, "encode", lambda record: encoded.append(record) or encode(record)
    )
    redirect_many(world, robots, 20, LEGAL)
    robots_fetch = world.frontier.schedule.cache.get("b.test").robots.fetches.pop(0)
    assert not answer(robots, robots_fetch, 200, RULES)
    assert len(encoded) == 1
    for number in range(20):
        authority = f"http://h{number}.test"
        assert robots.gate.verdict(authority, f"{authority}/private") is Verdict.DISALLOWED


# --- asks of other nodes ---


def test_asks_for_one_host_are_bounded(world: World, robots: RobotsFetches) -> None:
    for number in range(WAITING_AT_ONE + 2):
        robots.take_ask("there", number, f"{B}/{number}/robots.txt")
    said = [(number, record.ruling) for _, number, record in world.peers.answers]
    assert said == [(WAITING_AT_ONE, "retry"), (WAITING_AT_ONE + 1, "retry")]
    assert robots.asked == WAITING_AT_ONE


def test_an_ask_is_answered_when_the_robots_txt_came(world: World, robots: RobotsFetches) -> None:
    """Its own host gets it too. An ask that comes again hears that it waits."""
    robots.take_ask("there", 1, f"{B}/robots.txt")
    robots.take_ask("elsewhere", 2, f"{B}/robots.txt")
    robots.take_ask("there", 1, f"{B}/robots.txt")
    assert world.peers.answers == [("there", 1, None)]
    host = world.frontier.schedule.pop()
    assert host is not None
    (asked,) = host.robots.fetches
    assert isinstance(asked, RobotsFetch)
    host.robots.fetches.clear()
    answer(robots, asked, 200, RULES)
    told = [(node, number, record.body) for node, number, record in world.peers.answers[1:]]
    assert told == [("there", 1, RULES), ("elsewhere", 2, RULES)]
    assert robots.gate.verdict(B, f"{B}/private") is Verdict.DISALLOWED
    robots.take_ask("there", 3, f"{B}/robots.txt")
    assert world.peers.answers[-1][:2] == ("there", 3)
    assert robots.asked == 0


def test_asks_for_other_pages_fetch_nothing(world: World, robots: RobotsFetches) -> None:
    """Nor do those for a forbidden port, or for a host of another node."""
    world.foreign.add("c.test")
    for url in (f"{B}/login", "http://b.test:22/robots.txt", "http://c.test/robots.txt"):
        robots.take_ask("there", 1, url)
    assert [record.ruling for _, _, record in world.peers.answers] == ["allow_all"] * 2
    assert robots.asked == 0
    assert world.frontier.schedule.pop() is None
