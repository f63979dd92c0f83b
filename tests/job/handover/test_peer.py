"""The pace of a hand-over to one node, with a clock of our own and a list that loses chunks.

`test_sender` has the same with a real Redis, for few hosts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from krowlspider.frontier.moves.chunks import Chunk, decode_chunk
from krowlspider.job.nodes.receiver import LoopShare, Time
from krowlspider.job.nodes.sender import HandoverStats, PeerHandover

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOK = 0.05


class OneChunk:
    """The departure of a host of one chunk."""

    def __init__(self, name: str):
        self._name = name
        self.transfer = name.encode()

    def skip(self, sent: int) -> Iterator[None]:
        return iter(())

    def chunk(self, sent: int) -> Chunk | None:
        return None if sent else Chunk(self._name, "0" * 16, number=0, last=True)

    def end(self) -> Iterator[None]:
        return iter(())


class Hosts:
    """The departures of a node."""

    def begin(self, name: str) -> OneChunk:
        return OneChunk(name)


class Owner:
    """The Redis of a node that takes what is in its list at each look.

    ``lost`` chunks are lost first. ``others`` are chunks of other nodes, which stay.
    """

    def __init__(self, lost: int, others: int):
        self._lost = lost
        self.others = others
        self._arrived: set[str] = set()

    async def call_all(self, *commands: tuple[str, ...]) -> list[int]:
        return [self.others, 0, *(1 for _ in commands[2:])]

    async def call(self, command: str, *words: Any, is_bulk: bool = False) -> Any:
        if command == "MGET":
            return [b"1" if key.split(":")[2] in self._arrived else None for key in words]
        chunks = words[1:]
        taken, self._lost = chunks[self._lost :], max(0, self._lost - len(chunks))
        self._arrived.update(decode_chunk(chunk).host for chunk in taken)
        return len(taken)


class Sender:
    """A hand-over of ``hosts`` hosts to an owner, and its clock."""

    def __init__(self, hosts: int, owner: Any):
        self.now = 0.0
        self.stats = HandoverStats()
        self._owner = owner
        time = Time(lambda: self.now, asyncio.sleep)
        departures: Any = Hosts()
        share = LoopShare(lambda: 1.0, time)
        self.peer = PeerHandover("b", departures, "broad", share=share, stats=self.stats, time=time)
        for number in range(hosts):
            self.peer.add(f"h{number}")

    def look(self, until: float) -> None:
        async def run() -> None:
            while self.peer.is_active and self.now < until:
                await self.peer.run_round(self._owner)
                self.now += _LOOK

        asyncio.run(run())


def test_lost_chunks_hold_up_no_other_host() -> None:
    """More are lost than are asked for in one call, while the list is never empty."""
    sender = Sender(4000, Owner(lost=300, others=5))
    sender.look(until=5)
    assert sender.stats.hosts == 3700
    sender.look(until=20)
    assert (sender.stats.hosts, sender.stats.again) == (4000, 300)


def test_nothing_waits_for_a_node_with_a_full_list() -> None:
    owner = Owner(lost=10, others=0)
    sender = Sender(10_000, owner)
    sender.look(until=_LOOK)
    owner.others = 1000
    assert not sender.peer.is_stuck
    for until in (8, 16, 24, 32):
        sender.look(until)
        assert sender.peer.is_stuck
    owner.others = 0
    sender.look(until=60)
    assert sender.stats.hosts == 10_000
