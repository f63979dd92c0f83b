"""A deferred host is out of the heap until its time, or the next round."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.hosts.host import Health
from krowlspider.frontier.schedule.ownership import ROUND
from krowlspider.frontier.store.schema import DEFERRED
from krowlspider.politeness.delay import PARKED

if TYPE_CHECKING:
    from tests.frontier.conftest import World

A = "http://a.test/1"


def defer(world: World, wait: float = 0.0, errors: int = 0) -> str:
    """Pop a host and defer it after so many errors; return its name."""
    host = world.frontier.schedule.pop()
    assert host is not None
    host.rate.errors = errors
    world.frontier.schedule.deferral.defer(host, wait)
    return host.name


def test_a_day_of_deferral_survives_rounds_and_restarts(
    world: World,
) -> None:
    world.add(A)
    host = world.frontier.schedule.pop()
    assert host is not None
    world.frontier.schedule.deferral.defer(host, PARKED)
    assert not world.frontier.has_fetchable
    for _ in range(22):
        world.clocks.pass_(ROUND)
        world.commit()
        world.restart()
        assert world.frontier.schedule.pop() is None
        assert not world.frontier.has_fetchable
    world.crash()
    world.clocks.pass_(ROUND)
    world.commit()
    world.clocks.pass_(ROUND - 1)
    assert world.frontier.schedule.pop() is None
    world.clocks.pass_(1)
    again = world.frontier.schedule.pop()
    assert again is not None
    assert again.name == "a.test"
    assert world.frontier.queued == 1


def test_a_round_schedules_every_deferred_host(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("krowlspider.frontier.schedule.ownership._REVIVED", 2)
    names = {f"h{number}.test" for number in range(5)}
    world.add(*(f"http://{name}/" for name in names))
    assert {defer(world) for _ in names} == names
    world.clocks.pass_(ROUND)
    for _ in range(3):
        world.commit()
    assert list(world.store.keys(DEFERRED)) == []
    assert {host.name for _ in names if (host := world.frontier.schedule.pop())} == names


def test_a_short_deferral_ends_at_its_time_and_has_no_fetchable_url(
    world: World,
) -> None:
    world.add(A)
    defer(world, 120.0)
    assert not world.frontier.has_fetchable
    world.clocks.pass_(119.9)
    assert world.frontier.schedule.pop() is None
    world.clocks.pass_(0.2)
    host = world.frontier.schedule.pop()
    assert host is not None
    assert (host.name, host.health) == ("a.test", Health.BACKING_OFF)
    assert world.frontier.queues.pop(host) is not None


@pytest.mark.parametrize("stop", ["nothing", "commit", "restart"])
def test_forgiving_a_host_keeps_a_short_deferral(world: World, stop: str) -> None:
    """It has four errors of its own, and one on our side."""
    world.add(A)
    defer(world, 120.0, errors=5)
    world.frontier.schedule.deferral.forgive("a.test", 1)
    if stop != "nothing":
        world.commit()
    if stop == "restart":
        world.restart()
    world.clocks.pass_(119.9)
    assert world.frontier.schedule.pop() is None
    world.clocks.pass_(0.2)
    again = world.frontier.schedule.pop()
    assert again is not None
    assert (again.name, again.rate.errors) == ("a.test", 4)
    assert world.frontier.deferred_queued == 0


@pytest.mark.parametrize("stop", ["nothing", "commit", "crash"])
def test_forgiving_a_host_ends_its_day_of_deferral(world: World, stop: str) -> None:
    world.add(A)
    defer(world, PARKED, errors=10)
    world.commit()
    world.frontier.schedule.deferral.forgive("a.test", 1)
    if stop != "nothing":
        world.commit()
    if stop == "crash":
        world.crash()
    # The longest possible delay.
    world.clocks.pass_(300.0)
    again = world.frontier.schedule.pop()
    assert again is not None
    assert (again.name, again.rate.errors) == ("a.test", 9)
    assert world.frontier.deferred_queued == 0


@pytest.mark.parametrize("stop", ["nothing", "commit", "restart"])
def test_a_forgiven_host_still_waits_its_delay(world: World, stop: str) -> None:
    world.add(A)
    host = world.frontier.schedule.pop()
    assert host is not None
    host.rate.floor, host.rate.errors = 300.0, 10
    world.frontier.schedule.deferral.defer(host, PARKED)
    world.commit()
    world.frontier.schedule.deferral.forgive("a.test", 1)
    if stop != "nothing":
        world.commit()
    if stop == "restart":
        world.restart()
    world.clocks.pass_(299.9)
    assert world.frontier.schedule.pop() is None
    world.clocks.pass_(0.2)
    assert world.frontier.schedule.pop() is not None


def test_forgiven_host_waits_the_delay_of_its_own(world: World) -> None:
    world.rule = replace(world.rule, of_hosts={"a.test": replace(world.rule, minimum=500.0)})
    world.restart()
    world.add(A)
    defer(world, PARKED, errors=10)
    world.frontier.schedule.deferral.forgive("a.test", 1)
    world.clocks.pass_(499.9)
    assert world.frontier.schedule.pop() is None
    world.clocks.pass_(0.2)
    assert world.frontier.schedule.pop() is not None


def test_a_start_keeps_a_short_deferral(
    world: World,
) -> None:
    world.add(A)
    defer(world, 120.0)
    world.commit()
    world.restart()
    assert not world.frontier.has_fetchable
    world.clocks.pass_(119.0)
    assert world.frontier.schedule.pop() is None
    world.clocks.pass_(2.0)
    assert world.frontier.schedule.pop() is not None
