"""When a node may fetch, and what it counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace

from scrapy.settings import Settings

from krowlspider.cluster.ring.record import Record
from krowlspider.cluster.ring.ring import Member
from krowlspider.cluster.signals import Signal
from krowlspider.cluster.transport.forwarder import ForwardStats
from krowlspider.cluster.transport.inbox import InboxStats
from krowlspider.crawl.nodes.node import Node


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
        members = {name: Record(Member(name), dead=name == "b") for name in "ab"}
        cluster = SimpleNamespace(
            own_client=None, membership=SimpleNamespace(members=members), view=None
        )
        node = Node(Settings({"KROWL_NODE_ID": "a"}), "news", lambda *_: cluster)
        stats = [ForwardStats(failed=Counter(down=count)) for count in (1, 2, 4)]
        node._forwarders = [SimpleNamespace(stats=each) for each in stats]
        node._inbox = SimpleNamespace(stats=InboxStats())
        node._handover = SimpleNamespace(counts=dict, failed=Counter)
        counts = node.counts()
        assert (counts["members"], counts["failed_count/down"]) == (1, 7)

    asyncio.run(main())
