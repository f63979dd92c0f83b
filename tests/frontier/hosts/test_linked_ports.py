"""Links may lead to one port of a range for each host name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier import limits
from krowlspider.frontier.hosts.host import RobotsFetch
from krowlspider.urls.canonical import Ports
from tests.frontier.conftest import LIMITS, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Store

PORTS = Ports(["80", "443", "8080", "1024-65535"])


@pytest.fixture
def world(open_store: Callable[[], Store]) -> World:
    return World(open_store, limits=replace(LIMITS, ports=PORTS))


def admitted(world: World, *hosts: str) -> list[str]:
    return [host for host in hosts if world.frontier.linked_ports.admits(host)]


def test_a_name_has_one_port_of_a_range_and_all_listed_ones(world: World) -> None:
    hosts = ["a.test:3000", "a.test:3001", "a.test:8080", "a.test:443", "a.test:81", "b.test:3001"]
    hosts += ["[::1]", "[::1]:3000", "[::1]:3001"]
    assert admitted(world, *hosts) == [
        *("a.test:3000", "a.test:8080", "a.test:443", "b.test:3001"),
        *("[::1]", "[::1]:3000"),
    ]


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_the_port_of_a_name_holds_across_a_restart(world: World, end: str) -> None:
    assert admitted(world, "a.test:3000")
    getattr(world, end)()
    assert admitted(world, "a.test:3001", "a.test:3000") == ["a.test:3000"]
    assert world.frontier.linked_ports.is_linked("a.test:3000")


def test_links_may_lead_to_ports_that_a_person_gave(world: World) -> None:
    assert admitted(world, "a.test:3000")
    world.add("http://a.test:3001/", "http://b.test:81/", "http://[::1]/")
    given = ["a.test:3001", "b.test:81", "[::1]"]
    assert admitted(world, *given, "b.test:82") == given
    assert [host for host in given if world.frontier.linked_ports.is_linked(host)] == []


def test_the_verdicts_in_memory_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_HOSTS_IN_MEMORY", 20)
    hosts = [f"h{number}.test:3000" for number in range(100)]
    assert admitted(world, *hosts) == hosts
    assert len(world.frontier.linked_ports.admitted) <= 20
    assert admitted(world, *hosts, "h0.test:3001") == hosts
    assert all(map(world.frontier.linked_ports.is_linked, hosts))


@pytest.mark.parametrize(
    ("target", "followed"),
    [
        ("http://b.test:3000/robots.txt", True),
        ("http://b.test:8080/robots.txt", True),
        ("http://a.test:3000/x", True),
        ("http://b.test:25/robots.txt", False),
        ("http://b.test:999/robots.txt", False),
        ("http://c.test:3001/robots.txt", False),
    ],
)
def test_a_redirect_of_robots_txt_may_lead_to_no_other_port(
    world: World, target: str, followed: bool
) -> None:
    world.add("http://a.test:3000/")
    assert admitted(world, "c.test:3000")
    host = world.frontier.schedule.pop()
    assert host is not None
    robots_fetch = RobotsFetch("http://a.test:3000", host, "http://a.test:3000/robots.txt")
    world.robots_fetches.answered(robots_fetch, 301, b"", target)
    assert (robots_fetch.url == target) == followed
