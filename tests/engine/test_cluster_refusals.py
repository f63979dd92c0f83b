"""Requests that a node of a cluster refuses: each says why at its first use."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from scrapy import Request
from scrapy.exceptions import DownloadFailedError

from krowlspider.cluster.ring.claims import ClusterView, RegisterReading
from krowlspider.cluster.ring.ring import Member, MemberRecord
from krowlspider.cluster.transport.message import decode
from tests.support.simulation import SimulatedJob, Simulation, Web, in_memory

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.urls.scope import AskedScope

CLUSTER = {
    "KROWL_CONSUL": "unix:///none",
    "REDIS_URL": "redis://127.0.0.1:1",
    "KROWL_NODE_ID": "a",
    "COOKIES_ENABLED": True,
}
PROXY = {"proxy": "http://user:secret@127.0.0.1:9"}


class JobOfNode(SimulatedJob):
    """The job of a node, whose client has no connections."""

    def _open(self, asked: AskedScope | None) -> None:
        super()._open(asked)
        self.fetching.client = SimpleNamespace(hang_up=lambda: None)  # type: ignore[assignment]


def test_refused_requests_of_a_node_say_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The node of two reaches no Redis, and joins nobody. Cookies of a request are not refused."""

    async def main() -> None:
        node = Simulation(Web(), in_memory(), tmp_path, overrides=CLUSTER, job_class=JobOfNode)
        scheduler, frontier = node.scheduler, node.job.frontier
        members = {name: MemberRecord(Member(name)) for name in "ab"}
        node.node.cluster._controller.view = ClusterView("a", RegisterReading.of(1, members), ())
        names = [f"site{number}.test" for number in range(30)]
        owners = node.node.foreign_owners(names)
        own, other = (f"http://{names[owners.index(owner)]}/" for owner in (None, "b"))

        assert not any(scheduler.enqueue_request(Request(f"data:,{n}")) for n in range(3))
        assert complaint() == (
            "<GET data:,0> is dropped: data: URLs cannot be used in a cluster. Further ones are"
            " counted as dropped/url"
        )

        assert scheduler.enqueue_request(Request(own, meta=PROXY))
        assert not scheduler.enqueue_request(Request(other, meta=PROXY))
        assert complaint() == (
            f"{other} cannot be sent to node b, which owns it: no proxy travels to another node:"
            " name it in the environment of each node"
        )

        with pytest.raises(DownloadFailedError, match="not downloaded: in a cluster, yield it"):
            await scheduler.awaited.fetch(Request(own), lambda: None)

        assert scheduler.enqueue_request(Request(other, cookies={"name": "value"}))
        ((_, message),) = frontier.outbox.after("b", -1, 10)
        assert decode(message).rest["cookies"] == {"name": "value"}
        assert not caplog.records
        assert frontier.queued == 1
        assert scheduler.counted()["dropped/url"] == 3
        assert scheduler.counted()["dropped/unserializable"] == 1

    def complaint() -> str:
        (record,) = (record for record in caplog.records if record.levelname == "ERROR")
        caplog.clear()
        return record.getMessage()

    asyncio.run(main())
