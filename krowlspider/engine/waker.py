"""Wakes Scrapy's engine, which asks for requests only when something has happened.

Without it the engine would ask again at its heartbeat, after 5 s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.utils.asyncio import CallLaterResult, call_later

from krowlspider.internals.engine import wake

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.core.engine import ExecutionEngine


class Waker:
    """Makes the engine ask for the next request. ``now`` returns the job clock, in seconds."""

    def __init__(self, engine: ExecutionEngine, now: Callable[[], float]):
        self._engine = engine
        self._now = now
        self._timer: CallLaterResult | None = None
        self._due = 0.0

    def wake(self) -> None:
        """Make the engine ask in the next turn of the event loop."""
        wake(self._engine)

    def wake_at(self, due: float) -> None:
        """Make the engine ask at ``due``, in seconds of the job clock. An earlier time that is set
        already stays."""
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = call_later(max(0.0, due - self._now()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.wake()

    def cancel(self) -> None:
        """Cancel the time that is set."""
        if self._timer is not None:
            self._timer.cancel()
