"""All hosts of a domain share its budget."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.frontier.conftest import LIMITS, World

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from krowlspider.frontier.store.store import Store

A1, A2, A3 = (f"http://a.test/{number}" for number in range(3))


def budgeted(open_store: Callable[[], Store], most: int) -> World:
    return World(open_store, limits=replace(LIMITS, domain_budget=most))


def test_hosts_of_a_domain_share_its_budget(
    open_store: Callable[[], Store],
) -> None:
    world = budgeted(open_store, 3)
    assert world.add("http://a.x.test/", "http://b.x.test/", "http://c.x.test/") == 3
    assert world.add("http://d.x.test/", "http://a.y.test/") == 1
    assert world.frontier.counters["dropped/domain_budget"] == 1
    assert not world.frontier.seen.known("d.x.test", world.hasher.key("http://d.x.test/"))


def test_a_done_page_keeps_its_place_in_the_budget(
    open_store: Callable[[], Store],
) -> None:
    """Also after a crash; a dropped page frees its place."""
    world = budgeted(open_store, 2)
    world.add(A1, A2)
    assert world.fetch() == A1
    world.commit()
    world.crash()
    assert world.add(A3) == 0
    world.clocks.pass_(1)
    lease = world.pop()
    assert lease is not None
    world.frontier.acknowledge(lease, dropped="robots")
    world.frontier.schedule.release(lease.host, 0.25)
    world.commit()
    world.restart()
    assert world.add(A3) == 1


def test_budgets_in_memory_are_bounded(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("krowlspider.frontier.limits._DOMAINS_IN_MEMORY", 10)
    world = budgeted(open_store, 1)
    urls = [f"http://h.d{number}.test/" for number in range(50)]
    for url in urls:
        assert world.add(url) == 1
    assert len(world.frontier.budget._counts) <= 10
    assert [world.add(url + "x") for url in urls] == [0] * 50
