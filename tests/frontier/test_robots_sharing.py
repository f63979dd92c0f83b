"""What one authority's robots.txt settles for others, and what a clock that was ahead leaves
behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.robots import gate as robots_gate
from krowlspider.frontier.robots.gate import WAITING_AT_ONE, Verdict
from krowlspider.politeness.robots import RobotsRecord
from tests.frontier.test_robots_gate import (
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
    gate_of,
    robots_fetch_of,
)

if TYPE_CHECKING:
    from krowlspider.frontier.robots.gate import RobotsGate
    from tests.frontier.conftest import World

DAY = 86_400.0
LEGAL = f"{B}/legal/robots.txt"


@pytest.fixture
def gate(world: World) -> RobotsGate:
    return gate_of(world)


# --- a clock that was ahead ---


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_fetched_while_the_clock_was_ahead_is_asked_for_again(
    world: World, gate: RobotsGate, restarted: bool
) -> None:
    """It would hold until the true time has come to where the clock was."""
    robots_fetch = robots_fetch_of(world, gate)
    world.clocks.wall += DAY
    answer(gate, robots_fetch, 200, RULES)
    assert gate.verdict(A, PAGE) is Verdict.ALLOWED
    world.clocks.wall -= DAY
    if restarted:
        world.restart()
        gate = gate_of(world)
    assert gate.verdict(A, PAGE) is Verdict.UNKNOWN
    answer(gate, gate.robots_fetch(A, world.frontier.host("a.test")), 200, b"")
    assert gate.verdict(A, PRIVATE) is Verdict.ALLOWED
    world.clocks.pass_(TTL)
    assert gate.verdict(A, PRIVATE) is Verdict.UNKNOWN


def test_what_was_fetched_while_the_clock_was_ahead_is_not_handed_to_others(
    world: World, gate: RobotsGate
) -> None:
    """They would not know it either, and ask again and again."""
    robots_fetch = robots_fetch_of(world, gate, "http://shared.test/")
    world.clocks.wall += DAY
    answer(gate, robots_fetch, 200, RULES)
    world.clocks.wall -= DAY
    other = robots_fetch_of(world, gate)
    assert answer(gate, other, 301, location=SHARED)
    assert world.frontier.host("shared.test").robots_fetches == [other]
    world.frontier.wait(other.host, 0.25)
    world.frontier.host("shared.test").robots_fetches.clear()
    answer(gate, other, 200, RULES)
    assert gate.verdict(A, PRIVATE) is Verdict.DISALLOWED
    assert gate.verdict("http://shared.test", "http://shared.test/private") is Verdict.DISALLOWED


def test_what_holds_for_longer_for_a_host_that_waits_is_fetched_again_for_others(
    world: World, gate: RobotsGate
) -> None:
    robots_fetch = robots_fetch_of(world, gate, "http://shared.test/")
    answer(gate, robots_fetch, 200, RULES)
    gate.outlast("http://shared.test", 2 * TTL)
    world.clocks.pass_(TTL)
    assert gate.verdict("http://shared.test", "http://shared.test/private") is Verdict.DISALLOWED
    assert answer(gate, other := robots_fetch_of(world, gate), 301, location=SHARED)
    assert world.frontier.host("shared.test").robots_fetches == [other]


def test_a_clock_that_is_set_back_an_hour_has_nothing_asked_for_again(
    world: World, gate: RobotsGate
) -> None:
    """As much as a record may outlast its life for a host that waits."""
    answer(gate, robots_fetch_of(world, gate), 200, RULES)
    world.clocks.wall -= 3600.0
    assert gate.verdict(A, PAGE) is Verdict.ALLOWED
    assert gate.verdict(A, PRIVATE) is Verdict.DISALLOWED


# --- robots.txt of many hosts, and in other places ---


@pytest.mark.parametrize("at_once", [True, False])
def test_of_each_host_that_redirects_to_one_robots_txt_it_is_told_once_that_it_has_come(
    world: World, gate: RobotsGate, at_once: bool
) -> None:
    """Those that wait for it, and those that find it known: each has a /sitemap.xml of its own."""
    told: list[str] = []
    gate.come = lambda robots_fetch, _: told.append(robots_fetch.authority)
    for part in [MANY] if at_once else [MANY[:1], MANY[1:]]:
        world.add(*[f"{host}/private" for host in part])
        asked = crawl(world, gate, 200)
        assert asked.count(SHARED) == (part[0] == MANY[0])
    assert sorted(told) == sorted(MANY)


WWW = "http://www.a.test"


def told_of(gate: RobotsGate) -> list[tuple[str, str, list[str]]]:
    """What will be told: the authority, the host whose pages led to it, and its sitemaps."""
    told: list[tuple[str, str, list[str]]] = []
    gate.come = lambda robots_fetch, named: told.append(
        (robots_fetch.authority, robots_fetch.host.name, named)
    )
    return told


@pytest.mark.parametrize(("status", "named"), [(200, ["/s.xml"]), (404, [])])
def test_a_host_whose_robots_txt_is_fetched_for_another_of_its_domain_is_told_too(
    world: World, gate: RobotsGate, status: int, named: list[str]
) -> None:
    """It is never asked for it again: a site that moves all to its www. host would have no
    sitemaps."""
    told = told_of(gate)
    robots_fetch = robots_fetch_of(world, gate)
    answer(gate, robots_fetch, 301, location=f"{WWW}/robots.txt")
    world.frontier.wait(robots_fetch.host, 0.25)
    world.frontier.host("www.a.test").robots_fetches.clear()
    assert told == []
    answer(gate, robots_fetch, status, b"Sitemap: /s.xml")
    assert told == [(WWW, "a.test", named), (A, "a.test", named)]
    assert gate.verdict(WWW, f"{WWW}/") is Verdict.ALLOWED


def test_a_host_of_another_domain_that_robots_txt_leads_to_is_not_told(
    world: World, gate: RobotsGate
) -> None:
    told = told_of(gate)
    robots_fetch = robots_fetch_of(world, gate)
    answer(gate, robots_fetch, 301, location=f"{B}/robots.txt")
    world.frontier.wait(robots_fetch.host, 0.25)
    world.frontier.host("b.test").robots_fetches.clear()
    answer(gate, robots_fetch, 200, b"Sitemap: /s.xml")
    assert told == [(A, "a.test", ["/s.xml"])]
    assert gate.verdict(B, f"{B}/") is Verdict.ALLOWED


def test_a_robots_txt_that_cannot_be_had_tells_nobody_of_the_hosts_it_is_of(
    world: World, gate: RobotsGate
) -> None:
    told = told_of(gate)
    robots_fetch = robots_fetch_of(world, gate)
    answer(gate, robots_fetch, 301, location=f"{WWW}/robots.txt")
    world.frontier.wait(robots_fetch.host, 0.25)
    world.frontier.host("www.a.test").robots_fetches.clear()
    gate.failed(robots_fetch, final=True)
    assert gate.verdict(WWW, f"{WWW}/") is Verdict.UNREACHABLE
    assert told == []


def test_a_robots_txt_in_another_place_of_another_host_decides_for_those_who_lead_there_alone(
    world: World, gate: RobotsGate
) -> None:
    robots_fetch = robots_fetch_of(world, gate)
    assert answer(gate, robots_fetch, 302, location=LEGAL)
    assert world.frontier.host("b.test").robots_fetches == [robots_fetch]
    world.frontier.wait(robots_fetch.host, 0.25)
    world.frontier.host("b.test").robots_fetches.clear()
    answer(gate, robots_fetch, 200, RULES)
    assert gate.verdict(A, PAGE) is Verdict.ALLOWED
    assert gate.verdict(A, PRIVATE) is Verdict.DISALLOWED
    assert gate.verdict(B, f"{B}/private") is Verdict.UNKNOWN


@pytest.mark.parametrize("location", [
    f"{B}/",
    B,
    f"{B}/?from=robots.txt",
    f"{B}/robots.txt/",
    f"{B}/login?back=/robots.txt",
    f"{B}/?url={A}/robots.txt",
])  # fmt: skip
def test_a_redirect_to_another_hosts_home_page_counts_as_no_robots_txt(
    world: World, gate: RobotsGate, location: str
) -> None:
    robots_fetch = robots_fetch_of(world, gate)
    assert not answer(gate, robots_fetch, 301, location=location)
    assert world.frontier.host("b.test").robots_fetches == []
    assert gate.verdict(A, PRIVATE) is Verdict.ALLOWED
    assert gate.waiting == 0


# --- more than may wait ---


def redirect_many(world: World, gate: RobotsGate, hosts: int, place: str) -> list[bool]:
    """Have as many hosts' robots.txt redirect there, each with a name of its own in it; whether
    each waits."""
    names = [f"http://h{number}.test/page" for number in range(hosts)]
    waits = []
    for number, robots_fetch in enumerate([robots_fetch_of(world, gate, name) for name in names]):
        waits.append(answer(gate, robots_fetch, 301, location=place.format(number)))
        if waits[-1]:
            world.frontier.wait(robots_fetch.host, 0.25)
        else:
            world.frontier.give_back(robots_fetch.host)
    return waits


@pytest.mark.parametrize("place", [LEGAL, f"{B}/{{}}/robots.txt"])
def test_hosts_that_would_crowd_another_are_deferred_and_come_again(
    world: World, gate: RobotsGate, place: str
) -> None:
    waits = redirect_many(world, gate, WAITING_AT_ONE + 2, place)
    assert waits == [True] * WAITING_AT_ONE + [False] * 2
    assert len(world.frontier.host("b.test").robots_fetches) == gate.waiting == WAITING_AT_ONE
    late = f"http://h{WAITING_AT_ONE}.test"
    assert gate.verdict(late, f"{late}/page") is Verdict.UNREACHABLE, (
        "it is deferred when it is popped"
    )
    assert world.frontier.queued == WAITING_AT_ONE + 2
    # Their robots.txt is asked for again after a while.
    world.clocks.pass_(robots_gate.UNREACHABLE_TTL)
    assert gate.verdict(late, f"{late}/page") is Verdict.UNKNOWN


def test_hosts_that_wait_anywhere_are_bounded(
    world: World, gate: RobotsGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(robots_gate, "WAITING_MAX", 5)
    waits = redirect_many(world, gate, 7, "http://to{}.test/robots.txt")
    assert waits == [True] * 5 + [False] * 2
    assert gate.waiting == 5


def test_a_robots_txt_of_many_hosts_is_packed_once(
    world: World, gate: RobotsGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = []
    encode = RobotsRecord.encode
    monkeypatch.setattr(
        RobotsRecord, "encode", lambda record: packed.append(record) or encode(record)
    )
    redirect_many(world, gate, 20, LEGAL)
    robots_fetch = world.frontier.host("b.test").robots_fetches.pop(0)
    assert not answer(gate, robots_fetch, 200, RULES)  # type: ignore[arg-type]
    assert len(packed) == 1
    for number in range(20):
        authority = f"http://h{number}.test"
        assert gate.verdict(authority, f"{authority}/private") is Verdict.DISALLOWED
