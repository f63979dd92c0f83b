"""Blocks and delays that a person orders while the crawl runs."""

from __future__ import annotations

import json
from time import process_time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.frontier.admin.edit import coverage
from krowlspider.frontier.schedule import orders as orders_module
from krowlspider.frontier.schedule import orders as standing
from krowlspider.frontier.schedule.orders import (
    OrderError,
    Orders,
    StandingOrder,
    decode_orders,
    encode_orders,
)
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import put
from tests.frontier.conftest import LIMITS, RULE, KeptMemoryStore, World

if TYPE_CHECKING:
    from krowlspider.frontier.store.store import Store

A, B, C = "http://a.dom.test/", "http://b.dom.test/", "http://c.other.test/"
YEARS = 3 * 365 * 86_400.0


def orders(world: World) -> Orders:
    return world.frontier.schedule.orders


def give(world: World, kind: str, rule: str, seconds: float = 0.0) -> bool:
    """Give a standing order; return whether it changed anything."""
    made = orders(world).made(kind, rule, "a test", seconds)
    return orders(world).take(made)


def end(world: World, kind: str, rule: str) -> bool:
    return orders(world).take(orders(world).made(kind, rule, "a test", ended=True))


def fetched(world: World) -> list[str]:
    """Return the URLs of all pages that are due, fetched."""
    found = []
    while (url := world.fetch()) is not None:
        found.append(url)
    return found


def test_a_block_covers_hosts_found_later_and_stands(world: World) -> None:
    world.add(A, C)
    assert give(world, "block", "test,dom,")
    assert not give(world, "block", "test,dom,")
    assert fetched(world) == [C]
    world.commit()
    world.add(B)
    world.crash()
    world.clocks.pass_(YEARS)
    assert world.pop() is None
    # What is put off already, and what a pop has not looked at, go on.
    world.add("http://d.dom.test/")
    assert end(world, "block", "test,dom,")
    assert not end(world, "block", "test,dom,")
    world.clocks.pass_(RULE.minimum)
    assert sorted(fetched(world)) == [A, B, "http://d.dom.test/"]


def test_a_block_ends_at_its_time_after_a_crash_too(world: World) -> None:
    world.add(A, B, C)
    for rule, seconds in (("a.dom.test", 100.0), ("b.dom.test", 200.0), ("c.other.test", 0.0)):
        at = seconds and world.frontier.schedule.now() + seconds
        give(world, "block", rule, at)
    world.commit()
    world.crash()
    world.clocks.pass_(90.0)
    world.commit()
    assert fetched(world) == []
    world.clocks.pass_(11.0)
    world.commit()
    assert list(orders(world).blocks.rules) == ["b.dom.test", "c.other.test"]
    world.clocks.pass_(RULE.minimum)
    assert fetched(world) == [A]
    world.clocks.pass_(YEARS)
    world.commit()
    world.clocks.pass_(RULE.minimum)
    assert fetched(world) == [B]
    assert list(orders(world).standing.in_force("block")) == ["c.other.test"]


def test_a_request_in_flight_ends_and_no_other_begins(world: World) -> None:
    world.add(A, A + "1")
    lease = world.pop()
    assert lease is not None
    give(world, "block", "a.dom.test")
    world.frontier.acknowledge(lease)
    world.frontier.schedule.release(lease.host, 0.25)
    world.commit()
    world.clocks.pass_(YEARS)
    assert world.pop() is None
    assert world.frontier.schedule.pop_named("a.dom.test") is None
    assert world.frontier.queued == 1


def test_a_host_under_two_blocks_or_paused_stays(world: World) -> None:
    world.add(A, B)
    for rule in ("test,dom,", "a.dom.test"):
        give(world, "block", rule)
    assert give(world, "pause", "b.dom.test")
    assert fetched(world) == []
    end(world, "block", "test,dom,")
    world.commit()
    world.clocks.pass_(RULE.minimum)
    assert fetched(world) == []
    end(world, "block", "a.dom.test")
    world.clocks.pass_(RULE.minimum)
    assert fetched(world) == [A]


def test_the_end_of_a_block_survives_a_kill(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders_module, "_RELEASED", 2)
    urls = [f"http://h{at}.dom.test/" for at in range(7)]
    world.add(*urls)
    give(world, "block", "test,dom,")
    assert fetched(world) == []
    end(world, "block", "test,dom,")
    world.crash()
    for _ in urls:
        world.commit()
    world.clocks.pass_(YEARS)
    assert sorted(fetched(world)) == urls


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("how", ["block", "pause", "time"])
def test_no_death_between_two_writes_holds_a_host_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch, how: str, at: int
) -> None:
    """An order whose end was not written holds its host; one whose end was written does not."""
    kind = "block" if how == "time" else how
    world.add(A)
    over = world.frontier.schedule.now() + 10.0 if how == "time" else 0.0
    give(world, kind, "a.dom.test", over)
    assert fetched(world) == []
    world.commit()
    batch, left = type(world.store).batch, at

    def dying(store: Store, *, sync: bool = False) -> Any:
        nonlocal left
        made = batch(store, sync=sync)
        # A write does nothing from here on.
        left -= 1
        return (
            made
            if left >= 0
            else SimpleNamespace(put=made.put, delete=made.delete, write=lambda: None)
        )

    monkeypatch.setattr(type(world.store), "batch", dying)
    if how == "time":
        world.clocks.pass_(11.0)
        world.commit()
    else:
        end(world, kind, "a.dom.test")
    monkeypatch.undo()
    world.crash()
    for _ in range(3):
        world.commit()
    world.clocks.pass_(RULE.minimum)
    is_held = "a.dom.test" in orders(world).standing.in_force(kind)
    assert fetched(world) == ([] if is_held else [A])
    assert is_held == (how != "time" and at == 0)


def test_a_host_goes_on_though_blocks_keep_ending(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts of lasting blocks, in front of it in the heap, are all that one commit looks at."""
    monkeypatch.setattr(orders_module, "_RELEASED", 2)
    held = [f"http://h{at}.other.test/" for at in range(7)]
    world.add(*held, "http://z.dom.test/")
    for rule in ("test,other,", "z.dom.test", *(f"n{at}.test" for at in range(40))):
        give(world, "block", rule)
    assert fetched(world) == []
    world.commit()
    end(world, "block", "z.dom.test")
    for at in range(40):
        end(world, "block", f"n{at}.test")
        world.commit()
    world.clocks.pass_(RULE.minimum)
    assert fetched(world) == ["http://z.dom.test/"]
    # What has ended is kept until all hosts were looked at since.
    kept = json.loads(world.frontier.store.get(schema.BLOCK) or b"[]")
    assert 0 < len(kept) < 20
    for _ in range(9):
        world.commit()
    assert world.frontier.store.get(schema.BLOCK) is None


def test_many_blocks_that_end_at_once_end_some_with_each_commit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders_module, "_ENDED_AT_ONCE", 2)
    world.add(A, B, C)
    over = world.frontier.schedule.now() + 10.0
    for rule in ("a.dom.test", "b.dom.test", "c.other.test"):
        give(world, "block", rule, over)
    give(world, "block", "d.test", over + 10.0)
    assert fetched(world) == []
    world.commit()
    world.clocks.pass_(11.0)
    for left in (2, 1, 1):
        world.commit()
        assert len(orders(world).blocks.rules) == left
        world.crash()
    world.clocks.pass_(RULE.minimum)
    assert sorted(fetched(world)) == [A, B, C]


@pytest.mark.parametrize("kind", ["block", "pause", "delay"])
def test_an_order_takes_no_longer_where_there_are_many(world: World, kind: str) -> None:
    """A look at each of the others would make this take a minute."""
    begun = process_time()
    seconds = {"block": world.frontier.schedule.now() + 10.0, "delay": 60.0}.get(kind, 0.0)
    for at in range(4000):
        give(world, kind, f"h{at}.test", seconds)
    world.clocks.pass_(11.0)
    for _ in range(8):
        world.commit()
    assert len(orders(world).standing.in_force(kind)) == (0 if kind == "block" else 4000)
    assert process_time() - begun < 5


def test_a_robots_fetch_for_another_host_waits_for_the_block(world: World) -> None:
    schedule = world.frontier.schedule
    give(world, "block", "a.dom.test")
    schedule.enqueue_robots_fetch("a.dom.test", "fetch")
    world.clocks.pass_(1)
    assert schedule.pop() is None
    end(world, "block", "a.dom.test")
    world.clocks.pass_(RULE.minimum)
    host = schedule.pop()
    assert host is not None
    assert host.name == "a.dom.test"


def test_a_blocked_host_is_paused_at_its_next_owner(world: World) -> None:
    other = World(KeptMemoryStore, limits=LIMITS, node="there")
    world.add(A)
    give(world, "block", "a.dom.test")
    assert fetched(world) == []
    world.hand_over("a.dom.test", other)
    other.clocks.pass_(YEARS)
    assert other.pop() is None
    assert end(other, "pause", "a.dom.test")
    other.clocks.pass_(RULE.minimum)
    assert other.fetch() == A


def test_a_delay_of_a_host_stands_and_never_speeds_it_up(world: World) -> None:
    world.add(A, A + "1", A + "2")
    host = world.frontier.schedule.cache.get("a.dom.test")
    with pytest.raises(OrderError, match="below the least delay of this host"):
        give(world, "delay", "a.dom.test", RULE.minimum / 2)
    assert give(world, "delay", "a.dom.test", 9.0)
    orders(world).wait(host)
    assert world.pop() is None
    world.crash()
    world.clocks.pass_(8.9)
    assert world.pop() is None
    world.clocks.pass_(0.2)
    rule = world.frontier.schedule.rule
    assert world.fetch(rule.of("a.dom.test").delay(host.rate)) == A
    world.clocks.pass_(8.9)
    assert world.pop() is None
    host.rate.floor = 20.0
    assert rule.of("a.dom.test").delay(host.rate) == 20.0
    assert end(world, "delay", "a.dom.test")
    assert not end(world, "delay", "a.dom.test")
    assert rule.of("a.dom.test") is rule


def test_a_changed_policy_keeps_longer_delays_of_hosts(world: World) -> None:
    world.add(A)
    give(world, "delay", "a.dom.test", 3.0)
    delays, rule = orders(world).delays, world.frontier.schedule.rule
    delays.change_policy("minimum", 1.0)
    assert (rule.minimum, rule.of("a.dom.test").minimum) == (1.0, 3.0)
    delays.change_policy("minimum", 5.0)
    assert rule.of("a.dom.test").minimum == 5.0
    delays.change_policy("factor", 7.0)
    assert rule.of("a.dom.test").factor == 7.0


PORTS = ["http://a.dom.test/", "http://a.dom.test:8080/", "https://a.dom.test:8443/"]


@pytest.mark.parametrize("kind", ["block", "pause"])
@pytest.mark.parametrize(
    ("rule", "free"),
    [
        ("a.dom.test", []),
        ("a.dom.test:8080", [0, 2]),
        ("a.dom.test:443", [1, 2]),
        ("a.dom.test:80", [1, 2]),
    ],
)
def test_a_name_is_held_at_all_its_ports(
    world: World, kind: str, rule: str, free: list[int]
) -> None:
    world.add(*PORTS)
    assert give(world, kind, rule)
    assert sorted(fetched(world)) == sorted(PORTS[at] for at in free)
    world.commit()
    world.clocks.pass_(YEARS)
    assert world.pop() is None
    assert end(world, kind, rule)
    world.clocks.pass_(RULE.minimum)
    assert sorted(fetched(world)) == sorted(set(PORTS) - {PORTS[at] for at in free})


@pytest.mark.parametrize("kind", ["block", "pause"])
def test_an_order_for_an_unknown_name_holds_when_it_comes(world: World, kind: str) -> None:
    assert give(world, kind, "a.dom.test")
    assert not give(world, kind, "a.dom.test")
    world.crash()
    world.add(*PORTS, C)
    # The first look may be at a part of the hosts only.
    assert world.fetch() in {C, None}
    world.clocks.pass_(1)
    assert set(fetched(world)) <= {C}
    end(world, kind, "a.dom.test")
    world.clocks.pass_(RULE.minimum)
    assert sorted(fetched(world)) == sorted(PORTS)


def test_a_delay_of_an_unknown_name_is_that_of_all_ports(world: World) -> None:
    give(world, "delay", "a.dom.test", 9.0)
    give(world, "delay", "a.dom.test:8080", 20.0)
    world.crash()
    of = world.frontier.schedule.rule.of
    names = ("a.dom.test", "a.dom.test:8443", "a.dom.test:8080", "b.dom.test")
    assert [of(name).minimum for name in names] == [9.0, 9.0, 20.0, RULE.minimum]
    end(world, "delay", "a.dom.test")
    give(world, "delay", "b.dom.test:443", 5.0)
    world.crash()
    of = world.frontier.schedule.rule.of
    assert [of(name).minimum for name in names] == [RULE.minimum, RULE.minimum, 20.0, 5.0]


def test_of_two_orders_the_later_one_holds(world: World) -> None:
    """Also where they come from nodes whose clocks differ, and in the other order."""
    world.add(A)
    early = orders(world).made("block", "a.dom.test", "a test")
    late = early._replace(stamp=early.stamp + 1, ended=True)
    assert orders(world).take(early)
    assert orders(world).take(late)
    assert not orders(world).take(early)
    assert orders(world).made("block", "a.dom.test", "a test").stamp > late.stamp
    world.crash()
    assert not orders(world).take(early)
    world.clocks.pass_(RULE.minimum)
    assert fetched(world) == [A]


def test_ended_orders_are_kept_up_to_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "ENDED_MAX", 3)
    monkeypatch.setattr(standing, "ORDERS_MAX", 2)
    for at in range(6):
        give(world, "block", f"h{at}.test")
        world.clocks.pass_(1)
        end(world, "block", f"h{at}.test")
    kept = [order.rule for order in orders(world).standing.all()]
    assert kept == ["h3.test", "h4.test", "h5.test"]
    give(world, "pause", "a.test")
    give(world, "pause", "b.test")
    with pytest.raises(OrderError, match="2 names with a pause of their own"):
        give(world, "pause", "c.test")


def test_what_an_order_covers(world: World) -> None:
    world.add(*PORTS, PORTS[0] + "1", C, "http://b.a.dom.test/")
    lease = world.pop()
    assert lease is not None
    assert coverage(world.frontier, lease.host.name).in_flight == 1
    assert coverage(world.frontier, f"{lease.host.name}:443").in_flight == 1
    assert coverage(world.frontier, "test,dom,").in_flight == 1
    covered = coverage(world.frontier, "a.dom.test")
    names = ["a.dom.test", "a.dom.test:8080", "a.dom.test:8443"]
    assert (covered.hosts, covered.host_count) == (names, 3)
    world.frontier.acknowledge(lease)
    world.frontier.schedule.release(lease.host, 0.25)
    world.commit()
    world.crash()
    for rule, hosts in (
        ("a.dom.test", names),
        ("a.dom.test:443", names[:1]),
        ("a.dom.test:8080", names[1:2]),
        ("test,dom,", [*names, "b.a.dom.test"]),
        ("nowhere.test", []),
        ("a.dom.tes", []),
    ):
        assert coverage(world.frontier, rule).hosts == hosts
    assert coverage(world.frontier, "test,dom,").in_flight == 0
    # What is asked for is not known by that.
    world.frontier.schedule.cache.get("nowhere.test")
    assert coverage(world.frontier, "nowhere.test").words.startswith("It is unknown")


def test_blocks_and_delays_of_an_older_store_hold(world: World) -> None:
    put(world.frontier.store, b"Aa.dom.test", b"a test, 2026-01-01")
    put(world.frontier.store, b"Bb.dom.test", b"9.0")
    world.crash()
    world.add(A)
    assert fetched(world) == []
    assert world.frontier.schedule.rule.of("b.dom.test").minimum == 9.0


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "forget"},
        {"rule": "WWW.a.test"},
        {"rule": "a b"},
        {"stamp": -1},
        {"note": "x\nBlock by y"},
    ],
)
def test_an_order_of_another_node_is_checked(changes: dict[str, object]) -> None:
    good = StandingOrder("block", "test,dom,", 1, "a test")
    assert decode_orders(encode_orders([good])) == [good]
    with pytest.raises(ValueError, match=r"no (standing order|rule of hosts)|is no host"):
        decode_orders(encode_orders([good._replace(**changes)]))  # type: ignore[arg-type]
