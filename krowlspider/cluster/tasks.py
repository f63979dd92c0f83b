"""Tasks that run until they fail or are cancelled, and their end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

logger = logging.getLogger(__name__)

# Seconds after which a task that still runs is cancelled again.
_AGAIN = 5.0


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and return when all of them are done, whatever their results.

    None of them is awaited: the caller's own cancellation would look like theirs.
    """
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        # asyncio.wait_for of Python 3.11, which libraries use, may swallow a cancellation.
        _, running = await asyncio.wait(running, timeout=_AGAIN)


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Tasks:
    """Tasks of one owner. An exception of one goes to ``on_failure``; the others go on."""

    def __init__(self, on_failure: Callable[[Exception], None]):
        self._on_failure = on_failure
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        # No TaskGroup: it would wait for ever for a task that swallows its cancellation.
        self._tasks.append(asyncio.create_task(self._watch(work)))

    async def end(self) -> None:
        tasks, self._tasks = self._tasks, []
        await end(tasks)

    async def _watch(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
                (error,) = error.exceptions
            if not isinstance(error, KrowlError):
                logger.critical("This node of the cluster cannot go on", exc_info=error)
            self._on_failure(error)
