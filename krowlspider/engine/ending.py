"""For what a crawl waits that is about to end: its last requests."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from krowlspider.frontier.admin.words import counted, duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.crawl.flights import Flights
    from krowlspider.crawl.limits import PageBudget


class Ending:
    """Tells of the requests after which a crawl ends. ``clock`` returns monotonic seconds.

    ``timeout`` are the seconds of a fetch, without those of a request's own ``download_timeout``.
    ``is_closing`` tells whether the crawl is being stopped.
    """

    def __init__(
        self,
        flights: Flights,
        budget: PageBudget,
        *,
        is_closing: Callable[[], bool],
        timeout: float,
        clock: Callable[[], float],
    ):
        self._flights = flights
        self._budget = budget
        self._is_closing = is_closing
        self._timeout = timeout
        self._clock = clock
        # The time at which the last request will have ended, once the crawl is being stopped.
        self._end: float | None = None

    def stop_text(self) -> str:
        """Return for what a crawl waits that is being stopped; "" if it is not."""
        if not self._is_closing():
            return ""
        if self._end is None:
            self._end = self._clock() + self._longest
        if not (waiting := self._flights.on_the_wire):
            return "stopping"
        return f"stopping, waits for {counted(waiting, 'request')}{self._at_most(self._end)}"

    def limit_text(self) -> str:
        """Return for what a crawl waits that has sent as many pages as it may; "" before."""
        waiting = self._flights.on_the_wire
        if not (waiting and self._budget.is_spent):
            return ""
        last = "the last request" if waiting == 1 else f"the last {counted(waiting, 'request')}"
        return f"waits for {last}{self._at_most(self._flights.last_sent + self._longest)}"

    def _at_most(self, end: float) -> str:
        """Return the words for the seconds until ``end``; "" once it is over."""
        left = end - self._clock()
        return f" (at most {_whole(left)})" if left > 0 else ""

    @property
    def _longest(self) -> float:
        """Return the longest time limit of the requests that were sent, in seconds."""
        return max(self._flights.time_limits(self._timeout), default=self._timeout)


def _whole(seconds: float) -> str:
    """Return a duration in whole seconds, rounded up: ``60 s``, ``2 min 5 s``."""
    whole = ceil(seconds)
    return f"{whole} s" if whole <= 60 else duration(whole)
