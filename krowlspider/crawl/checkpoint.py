"""The timer of a job: group commit every KROWL_COMMIT_INTERVAL, and log lines about a full disk."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

logger = logging.getLogger(__name__)


class Checkpoint:
    """Calls ``commit`` every ``interval`` seconds, and ``fail`` with the error of one that fails.

    It also logs when the crawl pauses because its disk is full, and when it goes on: ``full``
    returns the folder that has no room, None if there is room. ``pauses`` counts the pauses.
    ``on_room`` is called when there is room again. While ``is_ending`` returns true, nothing waits
    for a full disk: ``give_up`` ends the wait.
    """

    def __init__(
        self,
        interval: float,
        *,
        commit: Callable[[], Awaitable[None]],
        fail: Callable[[Exception], None],
        full: Callable[[], Path | None],
        give_up: Callable[[], None],
        on_room: Callable[[], None],
        is_ending: Callable[[], bool],
    ):
        self._interval = interval
        self._commit_all = commit
        self._fail = fail
        self._is_full = full
        self._give_up = give_up
        self.pauses = 0
        self.on_room = on_room
        self._is_ending = is_ending
        self._tasks: list[asyncio.Task[None]] = []
        # The folder that had no room at the last look; None if there was room.
        self._full: Path | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch()), loop.create_task(self._commit())]

    def stop(self) -> None:
        """Stop the timer. Call it while no commit is under way."""
        self._look()
        for task in self._tasks:
            task.cancel()

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self._commit_all()
            except Exception as error:  # noqa: BLE001
                # Whatever it is, nothing can be acknowledged from now on.
                self._fail(error)
                return

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            self._look()

    def _look(self) -> None:
        before, self._full = self._full, self._is_full()
        if self._full is not None and before is None:
            self.pauses += 1
            logger.warning(
                "Paused: no room in %s. Make some, and the crawl goes on by itself; nothing is"
                " lost",
                self._full,
            )
        elif self._full is None and before is not None:
            logger.info("There is room in %s again: the crawl goes on", before)
            self.on_room()
        if self._full is not None and self._is_ending():
            # The engine waits for requests that wait for room: without this it would never end.
            self._give_up()
