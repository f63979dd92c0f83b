"""Which hosts a node takes from other nodes, and when it acknowledges them."""

from __future__ import annotations

import asyncio

import pytest

from krowlspider.cluster.ring.claims import ClusterView, RegisterReading
from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.cluster.transport.redis_connection import redis_client
from krowlspider.frontier.moves.chunks import Chunk, encode_chunk
from krowlspider.job.nodes.leaving import may_take
from krowlspider.job.nodes.receiver import HandoverReceiver

OLD, NEW = Ring([Member("b")]), Ring(map(Member, "ab"))
HOSTS = [f"site{number}.test" for number in range(100)]
OURS = [name for name in HOSTS if NEW.owner(name) == "a"]


def view(*names: str, claimed: Ring) -> ClusterView:
    """Node `a`'s view of the cluster: it claims one ring."""
    claims = dict.fromkeys((*names, "a"), (claimed,))
    return ClusterView("a", RegisterReading(1, tuple(map(Member, names)), claims), (claimed,))


class Arrivals:
    def __init__(self) -> None:
        self.taken: list[str] = []

    def take(self, chunk: Chunk) -> int:
        self.taken.append(chunk.host)
        return 1


class Node:
    """The receiver of node `a`, without a Redis: its acknowledgements fail."""

    def __init__(self, seen: ClusterView | None) -> None:
        self.arrivals = Arrivals()
        self.synced = 0
        self.receiver = HandoverReceiver(
            self.arrivals,
            redis_client("redis://127.0.0.1:1/0"),
            "broad",
            self._make_durable,
            may_take=lambda host: may_take(seen, host),
        )

    async def _make_durable(self) -> None:
        self.synced += 1

    def take(self, *chunks: bytes) -> list[str | None]:
        return asyncio.run(self.receiver.take(list(chunks)))


def chunk(host: str) -> bytes:
    return encode_chunk(Chunk(host, "0" * 16, number=0, last=True))


def test_owned_and_claimed_hosts_are_taken() -> None:
    node = Node(view("a", "b", claimed=NEW))
    assert node.take(*map(chunk, HOSTS)) == [None] * len(HOSTS)
    assert node.arrivals.taken == OURS
    assert node.receiver.stats.busy == len(HOSTS) - len(OURS)


@pytest.mark.parametrize(
    "seen",
    [
        None,
        ClusterView("a", RegisterReading(1, (Member("a"), Member("b")), {"a": (OLD,)}), (OLD,)),
        view("b", claimed=NEW),
    ],
    ids=["no view yet", "not claimed yet", "leaving"],
)
def test_no_host_is_taken_without_a_claim(seen: ClusterView | None) -> None:
    node = Node(seen)
    node.take(*map(chunk, HOSTS))
    assert node.arrivals.taken == []


def test_only_taken_chunks_are_made_durable() -> None:
    node = Node(view("a", "b", claimed=NEW))
    node.take(*(chunk(host) for host in HOSTS if host not in OURS))
    assert node.synced == 0
    node.take(chunk(OURS[0]))
    assert (node.receiver.stats.hosts, node.synced) == (1, 1)


@pytest.mark.parametrize("junk", [b"", b"[]", b"{}", b'{"host":"a"}', b"[" * 100_000])
def test_junk_is_refused(junk: bytes) -> None:
    node = Node(view("a", "b", claimed=NEW))
    (reason,) = node.take(junk)
    assert reason
    assert (node.receiver.stats.refused, node.arrivals.taken) == (1, [])


@pytest.mark.parametrize(("seen", "busy"), [(view("a", "b", claimed=NEW), 0), (None, 1)])
def test_a_bad_chunk_is_refused_by_the_owner_of_its_host_only(
    seen: ClusterView | None, busy: int
) -> None:
    node = Node(seen)
    (reason,) = node.take(chunk(OURS[0]).replace(b'"number":0', b'"number":-1'))
    assert (reason is None, node.receiver.stats.busy) == (busy == 1, busy)


def test_junk_host_is_left_to_the_arrivals() -> None:
    assert may_take(view("a", "b", claimed=NEW), "\ud800")
