"""Hands the hosts that belong to other nodes over to them, all at once and each as it can."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from functools import partial
from typing import TYPE_CHECKING

from krowlspider.cluster.delivery import Delivery, MoverStats
from krowlspider.cluster.loopshare import SHARE, LoopShare
from krowlspider.cluster.redisio import Backoff, Line, RedisTrouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio import Redis

    from krowlspider.cluster.delivery import Departures

logger = logging.getLogger(__name__)

# Seconds between two looks for acknowledgements: each takes 1 ms with a full window.
_POLL = 0.05
# Seconds that a node in trouble is left alone.
_BACKOFF = (0.5, 10.0)
# Names of hosts that wait for their turn; the next scan finds the others of a node that is stuck.
_WAITING = 10_000


class Mover:
    """Hands hosts of ``departures`` over to their owners. ``busy`` is what `Departures.begin` raises for one that cannot leave
    yet. ``client_for`` gives the client of an owner's Redis, None while it is no member: its hosts wait. Nothing is
    sent or removed while ``paused``. ``share`` of the event loop's time is taken at most, asked after each step; ``chance`` gives
    numbers from 0 to 1.
    """

    def __init__(
        self,
        departures: Departures,
        client_for: Callable[[str], Redis | None],
        spider: str,
        *,
        busy: type[Exception],
        paused: Callable[[], bool] = lambda: False,
        share: Callable[[], float] = lambda: SHARE,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._departures = departures
        self._client_for = client_for
        self._paused = paused
        self._share = LoopShare(share, clock)
        self._chance = chance
        self._deliveries: dict[str, Delivery] = {}
        self.stats = MoverStats()
        self._delivery = partial(
            Delivery,
            departures=departures,
            spider=spider,
            error=busy,
            share=self._share,
            stats=self.stats,
            clock=clock,
            paused=paused,
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

                def begin(delivery: Delivery) -> None:
                    workers.append(tasks.create_task(self._serve(delivery)))

                while await self._scan(owner_of, begin):
                    while any(each.is_active for each in self._deliveries.values()):  # noqa: ASYNC110
                        await asyncio.sleep(_POLL)
                for worker in workers:
                    worker.cancel()
        finally:
            self._deliveries.clear()

    async def _scan(
        self, owner_of: Callable[[str], str | None], begin: Callable[[Delivery], None]
    ) -> bool:
        """Have all hosts of others wait for their turn; whether there was any."""
        found = False
        steps = self._departures.moving(owner_of)
        while True:
            if self._paused():
                # The store is not to be gone over while it may be opened again.
                await asyncio.sleep(_POLL)
                continue
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

    async def _line_up(self, name: str, delivery: Delivery) -> None:
        while len(delivery.waiting) >= _WAITING:
            if delivery.is_stuck:
                # The next scan finds it.
                return
            await asyncio.sleep(_POLL)
        delivery.waiting.append(name)

    async def _serve(self, delivery: Delivery) -> None:
        backoff = Backoff(*_BACKOFF, self._chance)
        is_failing = False
        client: Redis | None = None
        line: Line | None = None
        try:
            while True:
                wait = _POLL
                if (now := self._client_for(delivery.owner)) is not client:
                    if line is not None:
                        await line.close()
                    client, line = now, None if now is None else Line(now)
                try:
                    if line is not None and delivery.is_active and not self._paused():
                        await delivery.turn(line)
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
            if line is not None:
                await line.close()
