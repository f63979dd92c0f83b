"""The share of a core that answers take together, so that a crawl in the process goes on."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds of work after which a thread rests.
_WORK = 0.005
_REST_MAX = 1.0


class ClientGone(Exception):
    """The client waits no more for the answer."""


class Pace:
    """Limits the answers under way to ``share`` of a core; 1 is no limit.

    ``sleep`` and ``clock`` are `time.sleep` and `time.thread_time`.
    """

    def __init__(
        self,
        share: float = 1.0,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.thread_time,
    ):
        self._share = share
        self._sleep = sleep
        self._clock = clock
        self.under_way = 0

    def rest(self, begun: float) -> float:
        """Rest if it is time to, after work that was begun at a time of the thread; return since
        when it works now."""
        if self._share >= 1.0:
            return begun
        worked = self._clock() - begun
        if worked < _WORK:
            return begun
        self._sleep(min(worked * (max(self.under_way, 1) / self._share - 1), _REST_MAX))
        return self._clock()

    def now(self) -> float:
        return self._clock()


class Turn:
    """The work for one client, until it has ``gone``."""

    def __init__(self, pace: Pace | None = None, gone: threading.Event | None = None):
        self.pace = pace or Pace()
        self._gone = gone or threading.Event()
        # The thread that works, and since when of its time.
        self._thread, self._begun = 0, 0.0

    def end(self) -> None:
        """Let the work end: the client has gone, or has its answer."""
        self._gone.set()

    def go_on(self) -> None:
        """Rest if it is time to. Call it after each few milliseconds of work.

        :raises ClientGone: the client waits no more
        """
        if self._gone.is_set():
            raise ClientGone
        if self._thread != (thread := threading.get_ident()):
            self._thread, self._begun = thread, self.pace.now()
        self._begun = self.pace.rest(self._begun)
