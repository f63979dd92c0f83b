"""Hands the hosts that belong to other nodes over to them, all at once and each as it can."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from functools import partial
from typing import TYPE_CHECKING

from krowlspider.cluster.handover.loop_share import SHARE, LoopShare
from krowlspider.cluster.handover.peer import HandoverStats, PeerHandover
from krowlspider.cluster.transport.redis_connection import Backoff, RedisConnection, RedisTrouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio import Redis

    from krowlspider.cluster.handover.peer import Departures

logger = logging.getLogger(__name__)

# Seconds between two looks for acknowledgements: each takes 1 ms with a full window.
_POLL = 0.05
# Seconds that a node in trouble is left alone.
_BACKOFF = (0.5, 10.0)
# Names of hosts that wait for their turn; the next scan finds the others of a node that is stuck.
_WAITING = 10_000


class HandoverSender:
    """Hands hosts of ``departures`` over to their owners. ``busy`` is what `Departures.begin` raises for one that cannot leave
    yet. ``client_for`` gives the client of an owner's Redis, None while it is no member: its hosts wait.
    ``share`` of the event loop's time is taken at most, asked after each step.
    """

    def __init__(
        self,
        departures: Departures,
        client_for: Callable[[str], Redis | None],
        spider: str,
        *,
        busy: type[Exception],
        share: Callable[[], float] = lambda: SHARE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._departures = departures
        self._client_for = client_for
        self._share = LoopShare(share, clock)
        self._deliveries: dict[str, PeerHandover] = {}
        self.stats = HandoverStats()
        self._delivery = partial(
            PeerHandover,
            departures=departures,
            spider=spider,
            error=busy,
            share=self._share,
            stats=self.stats,
            clock=clock,
        )

    @property
    def open(self) -> int:
        """Hosts under way."""
        return sum(len(delivery.open) for delivery in self._deliveries.values())

    async def send_all(self, owner_of: Callable[[str], str | None]) -> None:
        """Return when nothing is left here that ``owner_of``, the owner of a domain or None for us, gives to others.

        A node in trouble holds up no other. When this is cancelled, or raises, `Departures.stop` is to follow. What the
        departures raise comes out, in an ExceptionGroup.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                workers: list[asyncio.Task[None]] = []

                def begin(delivery: PeerHandover) -> None:
                    workers.append(tasks.create_task(self._serve(delivery)))

                while await self._scan(owner_of, begin):
                    while any(each.is_active for each in self._deliveries.values()):  # noqa: ASYNC110
                        await asyncio.sleep(_POLL)
                for worker in workers:
                    worker.cancel()
        finally:
            self._deliveries.clear()

    async def _scan(
        self, owner_of: Callable[[str], str | None], begin: Callable[[PeerHandover], None]
    ) -> bool:
        """Have all hosts of others wait for their turn; whether there was any."""
        found = False
        steps = self._departures.moving(owner_of)
        while True:
            async with self._share:
                step = next(steps, None)
            if step is None:
                return found
            found = found or bool(step)
            for name, owner in step:
                if owner not in self._deliveries:
                    self._deliveries[owner] = self._delivery(owner)
                    begin(self._deliveries[owner])
                await self._line_up(name, self._deliveries[owner])

    async def _line_up(self, name: str, delivery: PeerHandover) -> None:
        while len(delivery.waiting) >= _WAITING:
            if delivery.is_stuck:
                # The next scan finds it.
                return
            await asyncio.sleep(_POLL)
        delivery.waiting.append(name)

    async def _serve(self, delivery: PeerHandover) -> None:
        backoff = Backoff(*_BACKOFF, random.random)
        is_failing = False
        client: Redis | None = None
        connection: RedisConnection | None = None
        try:
            while True:
                wait = _POLL
                if (now := self._client_for(delivery.owner)) is not client:
                    if connection is not None:
                        await connection.close()
                    client, connection = now, None if now is None else RedisConnection(now)
                try:
                    if connection is not None and delivery.is_active:
                        await delivery.turn(connection)
                        backoff.worked()
                        if is_failing:
                            logger.info("Hosts go to node %s again", delivery.owner)
                        is_failing = False
                except RedisTrouble as error:
                    self.stats.failed[error.kind] += 1
                    if error.kind == "timeout":
                        delivery.slow_down()
                    if not is_failing:
                        logger.warning("Hosts of node %s wait here: %s", delivery.owner, error)
                    is_failing = True
                    wait = backoff.failed()
                await asyncio.sleep(wait)
        finally:
            if connection is not None:
                await connection.close()
