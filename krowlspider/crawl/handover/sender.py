"""Hands the hosts of other nodes over to them: to all in parallel, each at its own pace."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from krowlspider.cluster.transport.redis_connection import Backoff, RedisConnection, RedisTrouble
from krowlspider.crawl.handover.loop_share import REAL_TIME, SHARE, LoopShare, Time
from krowlspider.crawl.handover.peer import HandoverStats, PeerHandover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redis.asyncio import Redis

    from krowlspider.frontier.moves.departure import Departures

# Seconds between two looks for acknowledgements.
_POLL = 0.05
# Least and most seconds to wait after a failed call.
_BACKOFF = (0.5, 10.0)
# Most hosts that wait for one node. The next scan finds the others of a node that is stuck.
_WAITING = 10_000


class HandoverSender:
    """Hands hosts over to their owners, within a ``share`` of the event loop's time.

    ``client_for`` returns the client of an owner's Redis, None while it is no member.
    """

    def __init__(
        self,
        departures: Departures,
        client_for: Callable[[str], Redis | None],
        spider: str,
        *,
        share: Callable[[], float] = lambda: SHARE,
        time: Time = REAL_TIME,
    ) -> None:
        self._departures = departures
        self._client_for = client_for
        self._spider = spider
        self._time = time
        self._share = LoopShare(share, time)
        self._peers: dict[str, PeerHandover] = {}
        self.stats = HandoverStats()

    @property
    def open(self) -> int:
        return sum(len(peer.open) for peer in self._peers.values())

    async def send_all(
        self,
        owner_of: Callable[[str], str | None],
        ranges: Sequence[tuple[int, int]],
    ) -> None:
        """Return when nothing of other nodes is left here. A node in trouble holds up no other.

        ``owner_of`` and ``ranges`` are as in `Departures.moving`.

        If this is cancelled, or raises, `Departures.stop` must follow.

        :raises ExceptionGroup: the departures failed
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                workers: list[asyncio.Task[None]] = []

                def begin(peer: PeerHandover) -> None:
                    workers.append(tasks.create_task(self._serve(peer)))

                while await self._scan(self._departures.moving(owner_of, ranges), begin):
                    while any(peer.is_active for peer in self._peers.values()):
                        await self._time.sleep(_POLL)
                        self._warn_of_stalls()
                for worker in workers:
                    worker.cancel()
        finally:
            self._peers.clear()

    def _warn_of_stalls(self) -> None:
        for owner, peer in self._peers.items():
            peer.warn_if_stalled(is_member=self._client_for(owner) is not None)

    async def _scan(
        self, steps: Iterator[list[tuple[str, str]]], begin: Callable[[PeerHandover], None]
    ) -> bool:
        """Give all hosts of other nodes to their peers; return whether there was any."""
        found = False
        while True:
            async with self._share:
                step = next(steps, None)
            if step is None:
                return found
            found = found or bool(step)
            for name, owner in step:
                if owner not in self._peers:
                    self._peers[owner] = PeerHandover(
                        owner,
                        self._departures,
                        self._spider,
                        share=self._share,
                        stats=self.stats,
                        time=self._time,
                    )
                    begin(self._peers[owner])
                await self._enqueue(name, self._peers[owner])

    async def _enqueue(self, name: str, peer: PeerHandover) -> None:
        while len(peer.waiting) >= _WAITING:
            if peer.is_stuck:
                # The next scan finds this host.
                return
            await self._time.sleep(_POLL)
        peer.add(name)

    async def _serve(self, peer: PeerHandover) -> None:
        name = f"Handing hosts over to node {peer.owner}"
        backoff = Backoff(*_BACKOFF, name=name, failed=self.stats.failed)
        client: Redis | None = None
        connection: RedisConnection | None = None
        try:
            while True:
                wait = _POLL
                if (now := self._client_for(peer.owner)) is not client:
                    if connection is not None:
                        await connection.close()
                    client, connection = now, None if now is None else RedisConnection(now)
                try:
                    if connection is not None and peer.is_active:
                        await peer.run_round(connection)
                        backoff.succeed()
                except RedisTrouble as error:
                    wait = backoff.fail(error)
                await self._time.sleep(wait)
        finally:
            if connection is not None:
                await connection.close()
