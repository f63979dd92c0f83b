"""What a node of a static list does with an outbox from before a start with another list."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from scrapy.settings import Settings

from krowlspider.cluster.tasks import Tasks
from krowlspider.crawl.nodes.static import StaticCluster
from krowlspider.frontier.outbox import Outbox
from krowlspider.urls.host import domain_of
from tests.frontier.memory import MemoryStore

if TYPE_CHECKING:
    import pytest

SETTINGS = {
    "KROWL_CLUSTER": "tests",
    "KROWL_STATIC_NODES": "a=redis://127.0.0.1:1/0,b=redis://127.0.0.1:1/1",
    "KROWL_STATIC_NODES_SECRET": "sixteen characters",
}
HOSTS = [f"site{number}.test" for number in range(20)]


def test_outbox_of_another_list_goes_to_the_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are ours now are queued; node ``z`` is no more."""

    async def main() -> None:
        cluster = StaticCluster(Settings(SETTINGS), "a")

        async def start() -> None:
            """Join nobody."""

        monkeypatch.setattr(cluster.membership, "start", start)
        store, taken = MemoryStore(), list[bytes]()
        outbox = Outbox(store, 0, None)
        batch = store.batch()
        for host in HOSTS:
            outbox.put("z", host, host.encode(), batch)
        batch.write()

        def take_back(found: list[tuple[bytes, bytes]]) -> None:
            taken.extend(message for _, message in found)
            outbox.take_out([key for key, _ in found], batch)
            batch.write()

        crawl: Any = SimpleNamespace(outbox=outbox, take_back=take_back)
        cluster.attach(crawl)
        failed: list[Exception] = []
        tasks = Tasks(failed.append)
        await cluster.join(tasks)
        while "z" in outbox.owners():  # noqa: ASYNC110
            await asyncio.sleep(0)
        ring = cluster.view.ring
        ours = [host.encode() for host in HOSTS if ring.owner(domain_of(host)) == "a"]
        assert (taken, failed) == (ours, [])
        assert outbox.depths() == {"b": len(HOSTS) - len(ours)}
        await tasks.end()
        await cluster.close()

    asyncio.run(main())
