"""Tasks that run until they are told to end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

# Seconds after which a task that goes on is cancelled again.
_SWALLOWED = 5.0


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and return when all are at their end, whatever it is.

    Not by awaiting one of them: our own cancellation would look like its.
    """
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        # On Python 3.11 asyncio.wait_for may swallow a cancellation, in a library too.
        _, running = await asyncio.wait(running, timeout=_SWALLOWED)
