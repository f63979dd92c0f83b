"""What one authority's robots.txt settles for others, and what a clock that was ahead leaves
behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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


# --- a clock that was ahead ---


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_fetched_while_the_clock_was_ahead_is_asked_for_again(
    world: World, robots: RobotsFetches, restarted: bool
) -> None:
    """It would hold until the true time has come to where the clock was."""
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


def test_what_was_fetched_while_the_clock_was_ahead_is_not_handed_to_others(
    world: World, robots: RobotsFetches
) -> None:
    """They would not know it either, and ask again and again."""
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


def test_what_holds_for_longer_for_a_host_that_waits_is_fetched_again_for_others(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots, "http://shared.test/")
    answer(robots, robots_fetch, 200, RULES)
    robots.gate.outlast("http://shared.test", 2 * TTL)
    world.clocks.pass_(TTL)
    assert (
        robots.gate.verdict("http://shared.test", "http://shared.test/private")
        is Verdict.DISALLOWED
    )
    assert answer(robots, other := robots_fetch_of(world, robots), 301, location=SHARED)
    assert world.frontier.schedule.cache.get("shared.test").robots.fetches == [other]


def test_a_clock_that_is_set_back_an_hour_has_nothing_asked_for_again(
    world: World, robots: RobotsFetches
) -> None:
    """As much as a record may outlast its life for a host that waits."""
    answer(robots, robots_fetch_of(world, robots), 200, RULES)
    world.clocks.wall -= 3600.0
    assert robots.gate.verdict(A, PAGE) is Verdict.ALLOWED
    assert robots.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED


# --- robots.txt of many hosts, and in other places ---


@pytest.mark.parametrize("at_once", [True, False])
def test_of_each_host_that_redirects_to_one_robots_txt_it_is_told_once_that_it_has_come(
    world: World, robots: RobotsFetches, at_once: bool
) -> None:
    """Those that wait for it, and those that find it known: each has a /sitemap.xml of its own."""
    for part in [MANY] if at_once else [MANY[:1], MANY[1:]]:
        world.add(*[f"{host}/private" for host in part])
        asked = crawl(world, robots, 200)
        assert asked.count(SHARED) == (part[0] == MANY[0])
    assert sorted(robots_fetch.authority for robots_fetch, _ in world.found) == sorted(MANY)


WWW = "http://www.a.test"


def found(world: World) -> list[tuple[str, str, list[str]]]:
    """Each robots.txt found: its authority, the host whose pages led to it, and its sitemaps."""
    return [
        (robots_fetch.authority, robots_fetch.host.name, named)
        for robots_fetch, named in world.found
    ]


@pytest.mark.parametrize(("status", "named"), [(200, ["/s.xml"]), (404, [])])
def test_a_host_whose_robots_txt_is_fetched_for_another_of_its_domain_is_told_too(
    world: World, robots: RobotsFetches, status: int, named: list[str]
) -> None:
    """It is never asked for it again: a site that moves all to its www. host would have no
    sitemaps."""
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 301, location=f"{WWW}/robots.txt")
    world.frontier.schedule.release(robots_fetch.host, 0.25)
    world.frontier.schedule.cache.get("www.a.test").robots.fetches.clear()
    assert found(world) == []
    answer(robots, robots_fetch, status, b"Sitemap: /s.xml")
    assert found(world) == [(WWW, "a.test", named), (A, "a.test", named)]
    assert robots.gate.verdict(WWW, f"{WWW}/") is Verdict.ALLOWED


def test_a_host_of_another_domain_that_robots_txt_leads_to_is_not_told(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 301, location=f"{B}/robots.txt")
    world.frontier.schedule.release(robots_fetch.host, 0.25)
    world.frontier.schedule.cache.get("b.test").robots.fetches.clear()
    answer(robots, robots_fetch, 200, b"Sitemap: /s.xml")
    assert found(world) == [(A, "a.test", ["/s.xml"])]
    assert robots.gate.verdict(B, f"{B}/") is Verdict.ALLOWED


def test_a_robots_txt_that_cannot_be_had_tells_nobody_of_the_hosts_it_is_of(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    answer(robots, robots_fetch, 301, location=f"{WWW}/robots.txt")
    world.frontier.schedule.release(robots_fetch.host, 0.25)
    world.frontier.schedule.cache.get("www.a.test").robots.fetches.clear()
    robots.failed(robots_fetch, final=True)
    assert robots.gate.verdict(WWW, f"{WWW}/") is Verdict.UNREACHABLE
    assert found(world) == []


def test_a_robots_txt_in_another_place_of_another_host_decides_for_those_who_lead_there_alone(
    world: World, robots: RobotsFetches
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    assert answer(robots, robots_fetch, 302, location=LEGAL)
    assert world.frontier.schedule.cache.get("b.test").robots.fetches == [robots_fetch]
    world.frontier.schedule.release(robots_fetch.host, 0.25)
    world.frontier.schedule.cache.get("b.test").robots.fetches.clear()
    answer(robots, robots_fetch, 200, RULES)
    assert robots.gate.verdict(A, PAGE) is Verdict.ALLOWED
    assert robots.gate.verdict(A, PRIVATE) is Verdict.DISALLOWED
    assert robots.gate.verdict(B, f"{B}/private") is Verdict.UNKNOWN


@pytest.mark.parametrize("location", [
    f"{B}/",
    B,
    f"{B}/?from=robots.txt",
    f"{B}/robots.txt/",
    f"{B}/login?back=/robots.txt",
    f"{B}/?url={A}/robots.txt",
])  # fmt: skip
def test_a_redirect_to_another_hosts_home_page_counts_as_no_robots_txt(
    world: World, robots: RobotsFetches, location: str
) -> None:
    robots_fetch = robots_fetch_of(world, robots)
    assert not answer(robots, robots_fetch, 301, location=location)
    assert world.frontier.schedule.cache.get("b.test").robots.fetches == []
    assert robots.gate.verdict(A, PRIVATE) is Verdict.ALLOWED
    assert robots.waiting == 0


# --- more than may wait ---


def redirect_many(world: World, robots: RobotsFetches, hosts: int, place: str) -> list[bool]:
    """Have as many hosts' robots.txt redirect there, each with a name of its own in it; whether
    each waits."""
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
def test_hosts_that_would_crowd_another_are_deferred_and_come_again(
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
    assert robots.gate.verdict(late, f"{late}/page") is Verdict.UNREACHABLE, (
        "it is deferred when it is popped"
    )
    assert world.frontier.queued == WAITING_AT_ONE + 2
    # Their robots.txt is asked for again after a while.
    world.clocks.pass_(robots_fetches.UNREACHABLE_TTL)
    assert robots.gate.verdict(late, f"{late}/page") is Verdict.UNKNOWN


def test_hosts_that_wait_anywhere_are_bounded(
    world: World, robots: RobotsFetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(robots_fetches, "WAITING_MAX", 5)
    waits = redirect_many(world, robots, 7, "http://to{}.test/robots.txt")
    assert waits == [True] * 5 + [False] * 2
    assert robots.waiting == 5


def test_a_robots_txt_of_many_hosts_is_packed_once(
    world: World, robots: RobotsFetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = []
    encode = RobotsRecord.encode
    monkeypatch.setattr(
        RobotsRecord, "encode", lambda record: packed.append(record) or encode(record)
    )
    redirect_many(world, robots, 20, LEGAL)
    robots_fetch = world.frontier.schedule.cache.get("b.test").robots.fetches.pop(0)
    assert not answer(robots, robots_fetch, 200, RULES)  # type: ignore[arg-type]
    assert len(packed) == 1
    for number in range(20):
        authority = f"http://h{number}.test"
        assert robots.gate.verdict(authority, f"{authority}/private") is Verdict.DISALLOWED
