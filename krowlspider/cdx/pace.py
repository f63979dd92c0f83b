"""The share of a core that answers take together, so that a crawl goes on beside them."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator

_T = TypeVar("_T")

# The share of a core that the answers of a crawl take for each of its processes.
SHARE_OF_CRAWL = 0.02
# Seconds of work of the event loop for a connection, besides what its answer takes: it is accepted,
# read and closed.
CONNECTION = 0.0015
# The part of the share that is for clients that are refused.
_FOR_REFUSED = 0.25
# Seconds of work after which a thread pays for it.
_WORK = 0.005
# Seconds of work that are done at once after a quiet time: those of some short queries.
_AT_ONCE = 0.05
# Seconds after which a thread that rests looks whether its client has gone.
_LOOK = 1.0


class ClientGone(Exception):
    """The client waits no more for the answer."""


class Pace:
    """Limits all answers together to ``share`` of a core; 1 is no limit.

    They have one account: all work is charged to it, and who works rests until it is even. Any
    thread may call. ``clock`` is `time.monotonic`.
    """

    def __init__(self, share: float = 1.0, clock: Callable[[], float] = time.monotonic):
        self._share = share
        self._clock = clock
        self._lock = threading.Lock()
        self._even_at = float("-inf")

    def charge(self, work: float) -> float:
        """Charge seconds of work; return how many seconds to rest now."""
        if self._share >= 1.0:
            return 0.0
        now = self._clock()
        with self._lock:
            earliest = now - _AT_ONCE / self._share
            self._even_at = max(self._even_at, earliest) + work / self._share
            return max(0.0, self._even_at - now)

    def refusal_wait(self, waiting: int) -> float:
        """Return how many seconds a client waits for its refusal, if so many wait with it."""
        return waiting * CONNECTION / (_FOR_REFUSED * self._share) if self._share < 1.0 else 0.0


@coroutine
def charged(
    pace: Pace, work: Coroutine[Any, Any, _T], clock: Callable[[], float] = time.thread_time
) -> Generator[Any, None, _T]:
    """Await ``work``, and charge what the event loop does for it: each step between two waits."""
    raised: BaseException | None = None
    while True:
        begun = clock()
        try:
            waited_for = work.send(None) if raised is None else work.throw(raised)
        except StopIteration as done:
            value: _T = done.value
            return value
        finally:
            pace.charge(clock() - begun)
        try:
            yield waited_for
            raised = None
        except BaseException as error:  # noqa: BLE001 - the work decides what becomes of it
            raised = error


class ClientWork:
    """The work for one client, until it has ``gone``.

    ``sleep`` and ``clock`` are `time.sleep` and `time.thread_time`.
    """

    def __init__(
        self,
        pace: Pace | None = None,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.thread_time,
    ):
        self._pace = pace or Pace()
        self._sleep = sleep
        self._clock = clock
        self._gone = threading.Event()
        # Since when of its time the thread works; one at a time works for a client.
        self._begun = 0.0

    def end(self) -> None:
        """Let the work end: the client has gone, or has its answer."""
        self._gone.set()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Charge what this thread does meanwhile, after it has rested for what was done before.

        :raises ClientGone: the client waits no more
        """
        self._rest(0.0)
        self._begun = self._clock()
        try:
            yield
        finally:
            self._pace.charge(self._clock() - self._begun)

    def go_on(self) -> None:
        """Rest if it is time to. Call it after each few milliseconds of work.

        :raises ClientGone: the client waits no more
        """
        if self._gone.is_set():
            raise ClientGone
        if (worked := self._clock() - self._begun) >= _WORK:
            # Before the rest, which ends by an error if the client goes.
            self._begun += worked
            self._rest(worked)

    def _rest(self, worked: float) -> None:
        left = self._pace.charge(worked)
        while left > 0.0:
            if self._gone.is_set():
                raise ClientGone
            self._sleep(min(left, _LOOK))
            left -= _LOOK
