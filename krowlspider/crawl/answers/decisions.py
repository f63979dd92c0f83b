"""What an answer or a failure means for the host, and for the page: pure decisions.

`krowlspider.crawl.flights.Flights.end` applies them all.
"""

from __future__ import annotations

from enum import Enum

from krowlspider.crawl.in_flight import End
from krowlspider.fetch.errors import NameNotFound
from krowlspider.politeness.delay import THROTTLING


class Charge(Enum):
    """With what a request charges its host: by which rule the host waits."""

    ANSWER = "an ordinary answer"
    THROTTLING = "throttling"
    ERROR = "an error"
    NO_NAME = "an unknown name"
    NOTHING = "nothing"


def charge_of_answer(status: int, *, is_robots: bool) -> Charge:
    """Return the charge for an answer.

    All pages of a host wait for its robots.txt, so a 5xx for it counts as throttling.
    """
    if status in THROTTLING or (is_robots and status >= 500):
        return Charge.THROTTLING
    return Charge.ANSWER


def charge_of_failure(
    kind: str, status: int | None, *, is_refused: bool, is_of_proxy: bool
) -> Charge:
    """Return the charge for a failure that is not excused.

    ``status`` is that of an answer whose body could not be read, None without one. ``is_refused``:
    the host answered, and the crawler refused the answer. ``is_of_proxy``: the proxy has failed.
    """
    if status in THROTTLING:
        return Charge.THROTTLING
    if is_refused:
        return Charge.ANSWER
    if is_of_proxy:
        # It is no failure of the host, which waits for its usual delay.
        return Charge.NOTHING
    return Charge.NO_NAME if kind == NameNotFound.kind else Charge.ERROR


def end_of_failure(*, is_excused: bool, goes_last: bool, may_fall_back: bool) -> End:
    """Return how a request has ended that has failed.

    ``goes_last``: the way that its page chose has failed, and the next page of its host may have
    another one. ``may_fall_back``: its page is a seed without a scheme, and its host has no https.
    """
    if is_excused:
        return End.EXCUSED_LAST if goes_last else End.EXCUSED
    return End.FELL_BACK if may_fall_back else End.FAILED
