"""When a node may fetch, and what it counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING

from scrapy.settings import Settings

from krowlspider.cluster.membership import Signal
from krowlspider.cluster.ring.ring import Member, MemberRecord
from krowlspider.cluster.transport.forwarder import ForwardStats
from krowlspider.cluster.transport.inbox import InboxStats
from krowlspider.job.nodes.node import Node

if TYPE_CHECKING:
    import pytest


def test_invariant_6_node_without_a_lease_is_not_ready() -> None:
    """Nor before it has joined and knows what people have ordered, nor while the cluster is
    stopped."""

    async def main() -> None:
        cluster = SimpleNamespace(
            own_client=None,
            membership=None,
            view=None,
            has_lease=True,
            signals=SimpleNamespace(signal=Signal.RUNNING),
        )
        node = Node(Settings({"KROWL_NODE_ID": "a"}), "news", lambda *_: cluster)
        assert not node.ready
        node.joined = True
        assert not node.ready
        node._has_orders = True
        assert node.ready
        cluster.has_lease = False
        assert not node.ready
        cluster.has_lease, cluster.signals.signal = True, Signal.STOP
        assert not node.ready

    asyncio.run(main())


def test_counts_are_of_live_members_and_all_messages() -> None:
    """Orders and messages about robots.txt too are counted when Redis refuses them."""

    async def main() -> None:
        members = {name: MemberRecord(Member(name), dead=name == "b") for name in "ab"}
        cluster = SimpleNamespace(
            own_client=None, membership=SimpleNamespace(members=members), view=None
        )
        node = Node(Settings({"KROWL_NODE_ID": "a"}), "news", lambda *_: cluster)
        stats = [ForwardStats(failed=Counter(down=count)) for count in (1, 2, 4)]
        node._forwarders = [SimpleNamespace(stats=each) for each in stats]
        node._url_forwarder = node._forwarders[0]
        node._streams = SimpleNamespace(again=0)
        node._inbox = SimpleNamespace(stats=InboxStats())
        node._handover = SimpleNamespace(counts=dict, failed=Counter)
        counts = node.counts()
        assert (counts["members"], counts["failed_count/down"]) == (1, 7)

    asyncio.run(main())


def test_seeds_of_a_node_hold_up_others_while_it_works() -> None:
    """A node that has sent no heartbeat may have seeds; one that does nothing for 40 s, or has
    ended, is not waited for."""

    async def main() -> None:
        members = {name: MemberRecord(Member(name)) for name in "ab"}
        membership = SimpleNamespace(members=members, pending_nodes=frozenset())
        cluster = SimpleNamespace(own_client=None, membership=membership, view=None)
        node = Node(Settings({"KROWL_NODE_ID": "a"}), "news", lambda *_: cluster)

        def waits(now: float, **counters: int) -> bool:
            if counters:
                members["b"] = MemberRecord(
                    Member("b"), counters={"start": 1, "beat": 1, **counters}
                )
            node._heartbeats._listen(now)
            return node.others_have_seeds()

        assert waits(0)
        assert waits(39)
        assert not waits(41)
        assert waits(42, seeds=1, activity=5)
        assert waits(81, seeds=1, activity=5)
        assert not waits(83, seeds=1, activity=5)
        assert waits(84, seeds=1, activity=6)
        assert not waits(85, activity=7)
        members["b"] = MemberRecord(Member("b"), dead=True)
        assert not waits(87)

    asyncio.run(main())


def test_standing_orders_that_a_redis_lost_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        beat = {"start": 1, "beat": 1, "orders": 0}
        members = {"a": MemberRecord(Member("a")), "b": MemberRecord(Member("b"), counters=beat)}
        cluster = SimpleNamespace(
            own_client=None,
            membership=SimpleNamespace(members=members),
            view=None,
            client_of=lambda _: object(),
        )
        node = Node(Settings({"KROWL_NODE_ID": "a"}), "news", lambda *_: cluster)
        node._crawl = SimpleNamespace(figures=lambda: {"orders": 5.0})
        assert node.without_orders() == {"b": 1}
        node.send_orders("b", 1, [])
        assert node.without_orders() == {}
        monkeypatch.setattr("krowlspider.job.nodes.node._TELL_AGAIN", 0.0)
        assert node.without_orders() == {"b": 1}
        members["b"] = MemberRecord(Member("b"), counters={**beat, "orders": 5.0})
        assert node.without_orders() == {}

    asyncio.run(main())
