"""The limits of a crawl: how many pages may still be popped, and how far it is from its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from krowlspider.frontier.admin.words import counted, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krowlspider.cluster.allowance import Allowance

# Seconds that a queue must shrink before its end is estimated.
_SHRINKING = 20.0
# Seconds before its end within which a crawl is said to be ending: some scrapes of Prometheus.
ENDING = 120.0


@dataclass(slots=True)
class Limits:
    """Pages done, answers received, and seconds; 0 or None is no limit.

    ``last`` says for what a crawl waits that has sent as many pages as it may. A crawl that is
    being stopped has no time left.
    """

    pages: int | None = None
    answers: int = 0
    seconds: float = 0.0
    last: str = ""
    is_stopping: bool = False


def progress(
    limits: Limits,
    *,
    pages: int,
    answers: int,
    seconds: float,
    queued: int,
    is_paused: bool = False,
) -> str:
    """Return how many pages of how many are done, and the time until the first limit is reached.

    The time is estimated from the average rate in ``seconds``, and left out while there is none.
    While the crawl is paused, has nothing ``queued`` or waits for its last requests, only a limit
    of seconds has an end.
    """
    text = (
        f"{pages:,} of {counted(limits.pages, 'page')}" if limits.pages else counted(pages, "page")
    )
    if limits.answers:
        text += f", {answers:,} of {counted(limits.answers, 'answer')}"
    left = [
        seconds / count * max(0, limit - count)
        for count, limit in ((pages, limits.pages), (answers, limits.answers))
        if limit and count and queued and not (is_paused or limits.last)
    ]
    if limits.seconds and not limits.is_stopping:
        left.append(limits.seconds - seconds)
    if limits.last and not is_paused:
        text += f", {limits.last}"
    return f"{text}, {duration(min(left))} left" if left and min(left) > 0 else text


def until_empty(looks: Sequence[tuple[float, int, int]]) -> float:
    """Return the seconds after which the queue is empty if it shrinks as before; 0 if it does not,
    or grew in between.

    A look has a time in seconds, pages done, and URLs queued.
    """
    seconds, queued = looks[-1][0] - looks[0][0], [look[2] for look in looks]
    before, now, middle = queued[0], queued[-1], len(queued) // 2
    if seconds < _SHRINKING or now >= before or max(queued[middle:]) > min(queued[:middle]):
        return 0.0
    return seconds / (before - now) * now


def may_end(limits: Limits, pages: int, queued: int | None, seconds: float) -> bool:
    """Return whether a crawl may reach its end within ENDING seconds, at its average rate: a limit,
    or the end of its queue, if that is not None."""
    if limits.seconds and limits.seconds - seconds <= ENDING:
        return True
    soon = pages / max(seconds, 1.0) * ENDING
    is_limited = limits.pages and limits.pages - pages <= soon
    return bool(is_limited) or (queued is not None and queued <= soon)


class PageBudget:
    """Counts the pages that may still be popped. Whatever else is fetched is free: robots.txt,
    sitemaps, requisites, opt-out files, redirects.

    ``left`` is this node's own number, and ``total`` what it was at first; None is no limit.
    ``left`` is below 0 if pages under way have awaited more requests. ``allowance`` is this node's
    part of the cluster's limit, which is counted too; None without one. ``is_limited``: something
    else limits the pages.
    """

    def __init__(self, allowance: Allowance | None, *, is_limited: bool = False):
        self._is_limited = is_limited or allowance is not None
        self.left: int | None = None
        self.total: int | None = None
        self._allowance = allowance

    @property
    def is_limited(self) -> bool:
        """Return whether anything limits the pages."""
        return self._is_limited or self.total is not None

    @property
    def is_spent(self) -> bool:
        """Return whether no page may be popped any more, here or in the whole cluster."""
        is_used = self.left is not None and self.left <= 0
        return is_used or (self._allowance is not None and self._allowance.spent)

    def take(self) -> None:
        """Count a page that was popped."""
        self._add(-1)
        if self._allowance is not None:
            self._allowance.take()

    def give_back(self) -> None:
        """Count off a page that was popped and not fetched."""
        self._add(1)
        if self._allowance is not None:
            self._allowance.give_back()

    def _add(self, pages: int) -> None:
        if self.left is not None:
            self.left += pages
