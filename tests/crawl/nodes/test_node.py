"""When a node may fetch."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from scrapy.settings import Settings

from krowlspider.cluster.signals import Signal
from krowlspider.crawl.nodes.node import Node


def test_invariant_6_node_without_a_lease_is_not_ready() -> None:
    """Nor before it has joined, nor while the cluster is stopped."""

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
        assert node.ready
        cluster.has_lease = False
        assert not node.ready
        cluster.has_lease, cluster.signals.signal = True, Signal.STOP
        assert not node.ready

    asyncio.run(main())
