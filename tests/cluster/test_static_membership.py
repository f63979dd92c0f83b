"""A static list of nodes: what it may say, and how its members see and refuse each other."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.cluster.membership import ClusterError, UnansweredError, parse_ring
from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.cluster.static_membership import StaticMembership
from krowlspider.cluster.transport.redis_connection import redis_client
from krowlspider.cluster.transport.redis_keys import RedisBoard
from tests.support.settings import refusal

if TYPE_CHECKING:
    from krowlspider.cluster.ring.record import Counters

    from .servers import Server

MEMBERS = [Member("a"), Member("b")]


class MemoryBoard(RedisBoard):
    """A board in this process."""

    def __init__(self) -> None:
        self.shown: dict[str, Counters] = {}
        self.answers = True

    async def exchange(
        self, node: str, counters: Counters
    ) -> tuple[dict[str, Counters], dict[str, Counters]]:
        before = await self.read()
        self.shown[node] = counters
        return before, await self.read()

    async def read(self) -> dict[str, Counters]:
        if not self.answers:
            raise UnansweredError("it is down")
        return dict(self.shown)


def membership(node: str, board: RedisBoard) -> StaticMembership:
    return StaticMembership(node, MEMBERS, [board], cluster="c", seal=5)


def test_static_nodes_have_weights_and_passwords():
    assert parse_ring(["a=redis://:pa*ss@h:1/0*3", " b=rediss://h2/0", "c=unix:///s*2"]) == [
        Member("a", 3, "redis://:pa*ss@h:1/0"),
        Member("b", 1, "rediss://h2/0"),
        Member("c", 2, "unix:///s"),
    ]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (["a"], "member 1 is not of the form"),
        (["a=redis://h", "b=http://secret@h"], "member 2 is not of the form"),
        (["a=redis://h", "a=redis://g"], "member a is listed twice"),
        (["a/b=redis://h"], "not a node id"),
        (["a=redis://h*0"], "1 to 64"),
    ],
)
def test_wrong_static_nodes_are_refused_without_passwords(parts: list[str], reason: str):
    with pytest.raises(ValueError, match=reason) as caught:
        parse_ring(parts)
    assert "secret" not in str(caught.value)


def test_order_of_static_nodes_does_not_matter() -> None:
    parts = ["b=redis://127.0.0.1:1/1", "a=redis://127.0.0.1:1/0", "c=redis://127.0.0.1:1/2*2"]
    assert parse_ring(parts) == parse_ring(parts[::-1])
    # All share the Redis of the first.
    assert parse_ring(parts)[0].id == "a"


def test_node_outside_the_static_list_is_refused():
    with pytest.raises(ClusterError, match=r"id z is not in KROWL_STATIC_NODES \(a, b\)"):
        membership("z", MemoryBoard())


def test_two_static_nodes_with_one_redis_are_refused():
    one = "redis://127.0.0.1:1/0"
    assert "members a and b have one Redis" in refusal(KROWL_STATIC_NODES=f"a={one},b={one}")


@pytest.mark.parametrize("ring", ["a=redis://:secret@h,b", "a=http://:secret@h"])
def test_wrong_static_nodes_setting_hides_passwords(ring: str):
    said = refusal(KROWL_STATIC_NODES=ring)
    assert said.startswith("KROWL_STATIC_NODES is no ring: member ")
    assert "secret" not in said


def test_static_nodes_see_each_others_counters(server: Server, cluster: str):
    async def main() -> None:
        async with redis_client(server.url) as client:
            board = RedisBoard(client, cluster)
            a, b = membership("a", board), membership("b", board)
            assert await a.beat({"start": 1, "pages": 1})
            assert await b.beat({"start": 2, "pages": 2})
            assert b.members["a"].counters["pages"] == 1
            endless = b'{"pages": ' + b"9" * 400 + b"}"
            for junk in (b"junk", endless):
                await client.hset(board.key, mapping={"a": junk, "z": "{}"})
                await b.beat({"start": 2, "pages": 3})
                assert b.members["a"].counters["pages"] == 1
                assert b.members.keys() == {"a", "b"}

    asyncio.run(main())


def test_static_nodes_go_on_without_their_board():
    async def main() -> None:
        board = MemoryBoard()
        node = membership("b", board)
        board.answers = False
        await node.start()
        assert not await node.beat({"start": 2, "pages": 4})
        assert node.members["b"].counters["pages"] == 4

    asyncio.run(main())


RING = Ring(MEMBERS).number
OURS = {"start": 1.0, "beat": 1}
ANOTHER_RING = {"start": 2, "beat": 1, "ring": 1}


@pytest.mark.parametrize(
    ("node", "before", "now", "is_refused"),
    [
        ("b", {**OURS, "ring": RING}, {**OURS, "beat": 2, "ring": RING}, False),
        ("b", ANOTHER_RING, {**ANOTHER_RING, "beat": 2}, True),
        # A process that sends no heartbeats any more.
        ("b", ANOTHER_RING, ANOTHER_RING, False),
        # The last heartbeat of a process.
        ("b", ANOTHER_RING, {**ANOTHER_RING, "beat": 2, "left": 1}, False),
        # A restored Redis shows heartbeats of an earlier crawl, or of the last hours.
        ("b", {**ANOTHER_RING, "beat": 9, "left": 1}, {**ANOTHER_RING, "beat": 7}, False),
        ("b", {"start": 7, "beat": 9, "ring": RING}, ANOTHER_RING, False),
        ("a", {"start": 7, "beat": 9, "ring": RING}, {"start": 3, "beat": 1, "ring": RING}, False),
        # Another process of this id that goes on.
        ("a", {"start": 3, "beat": 1}, {"start": 3, "beat": 2}, True),
    ],
)
def test_only_a_live_conflicting_process_is_refused(
    node: str, before: dict[str, Any], now: dict[str, Any], is_refused: bool
):
    with pytest.raises(ClusterError) if is_refused else nullcontext():
        membership("a", MemoryBoard()).refuse_conflict({node: before}, {node: now})


def test_node_with_another_secret_is_refused():
    node = membership("a", MemoryBoard())
    shown = {"start": 2.0, "beat": 1, "ring": RING, "seed": 6}
    with pytest.raises(ClusterError, match=r"node b .* has another KROWL_STATIC_NODES_SECRET"):
        node.refuse_conflict({"b": shown}, {"b": {**shown, "beat": 2}})
    # As one with our secret, or of a version that does not show it.
    for known in ({"seed": 5}, {}):
        shown = {"start": 2.0, "beat": 1, "ring": RING, **known}
        node.refuse_conflict({"b": shown}, {"b": {**shown, "beat": 2}})


def test_second_process_of_a_running_static_node_is_refused():
    """Each sees the other's heartbeat before it writes its own."""

    async def main() -> None:
        board = MemoryBoard()
        one, other = membership("a", board), membership("a", board)
        await one.beat({"start": 1, "beat": 1})
        await other.beat({"start": 2, "beat": 1})
        await one.beat({"start": 1, "beat": 2})
        with pytest.raises(ClusterError, match="another process is node a"):
            await other.beat({"start": 2, "beat": 2})

    asyncio.run(main())
