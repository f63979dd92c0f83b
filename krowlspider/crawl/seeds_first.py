"""Seeds: while pages are limited they go first, and redirects that the scope refuses are named."""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.queue import SEED_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from krowlspider.crawl.in_flight import InFlight
    from krowlspider.crawl.limits import PageBudget
    from krowlspider.frontier.frontier import Frontier

# Seconds for which other pages wait for a seed: that is in flight, that may be fetched then, and
# that may be tried again then, when no more pages may be fetched than such seeds wait.
_IN_FLIGHT = 30.0
_SOON = 10.0
_AGAIN = 150.0
# Seconds after seeds were sent to other nodes, which take them in, and say so.
_TAKEN_IN = 3.0
# Seconds between two looks at what other nodes have.
_LOOK = 1.0

# The arguments of a spider that refuse the redirect of a seed, by the word of `Scope.refusal`.
_ARGUMENTS = {"host": "same_host", "domain": "same_domain", "allow": "allow"}
# Redirects that are named.
_NAMED = 3


class SeedsFirst:
    """Says when other pages must wait for seeds.

    ``wake`` is called when they need not wait any more. ``under_way`` has the requests for seeds,
    and for the robots.txt of seeds, with the end of the wait for each. The first one ends first.
    ``others`` returns whether other nodes have seeds to fetch; None without other nodes.
    """

    def __init__(
        self,
        frontier: Frontier,
        budget: PageBudget,
        wake: Callable[[], None],
        others: Callable[[], bool] | None = None,
    ):
        self._turns = frontier.schedule.seed_turns
        self._due = frontier.schedule.due
        self._now = frontier.now
        self._budget = budget
        self._wake = wake
        self._others = others
        # Whether they have, and until when that holds.
        self._others_have = False
        self._looks_at = 0.0
        # `SeedTurns.sent_count` at the last look.
        self._sent = 0
        self.under_way: dict[Request, float] = {}
        # When the last of them ended.
        self._ended = 0.0

    def begin(self, request: Request, in_flight: InFlight) -> None:
        """Note a request that is handed to the engine."""
        lease, fetch = in_flight.lease, in_flight.robots_fetch
        if lease.priority == SEED_PRIORITY if lease else fetch and fetch.host.queue.has_seeds:
            self.under_way[request] = self._now() + _IN_FLIGHT

    def over(self, request: Request) -> None:
        """Note that a request is over, and that what it has found is queued."""
        if self.under_way.pop(request, None) is not None:
            self._ended = self._now()
            if not self.under_way:
                self._wake()

    def only(self) -> bool:
        """Return whether only seeds may be fetched now."""
        if not self._is_limited():
            return False
        return self._must_wait() or (self._others is not None and self.waits_for_others())

    def has_own(self) -> bool:
        """Return whether pages are limited, and links must wait for seeds of this node, here and at
        other nodes."""
        return self._is_limited() and self._has_own()

    def _is_limited(self) -> bool:
        if not self._turns.is_limited and self._budget.is_limited:
            self._turns.limit()
        return self._turns.is_limited

    def _has_own(self) -> bool:
        # Here, seeds at the front are popped before links anyway.
        return self._turns.any_at_front(self._due.next_due) or self._must_wait()

    def waits_for_others(self) -> bool:
        """Return whether links must wait for the seeds of other nodes alone."""
        if self._others is None or not self._turns.is_limited:
            return False
        if self._has_own():
            return False
        now = self._now()
        if self._sent != self._turns.sent_count:
            self._sent = self._turns.sent_count
            self._others_have, self._looks_at = True, now + _TAKEN_IN
        if now >= self._looks_at:
            self._others_have, self._looks_at = self._others(), now + _LOOK
        return self._others_have

    def _must_wait(self) -> bool:
        under_way, turns, left = self.under_way, self._turns, self._budget.left
        if not under_way and not turns.any_known:
            return False
        now = self._now()
        while under_way and (first := next(iter(under_way.items())))[1] <= now:
            del under_way[first[0]]
        if under_way or turns.are_coming or turns.next_fresh() <= now + _SOON:
            return True
        are_few = left is not None and left <= turns.known
        if now < self._ended + (_AGAIN if are_few else _SOON) and turns.waits_in_line():
            return True
        return are_few and min(turns.next_fresh(), turns.next_tried()) <= now + _AGAIN

    def next_end(self) -> float:
        """Return when a wait may end by itself, in seconds of the job clock; inf if something else
        ends it before."""
        now = self._now()
        if self.waits_for_others():
            return self._looks_at
        ends = [*islice(self.under_way.values(), 1), self._ended + _SOON, self._ended + _AGAIN]
        return min((end for end in ends if end > now), default=inf)


class SeedRedirects:
    """Counts the redirects of seeds that the scope refuses, and keeps the first ones."""

    def __init__(self) -> None:
        self._count = 0
        self._named: list[str] = []

    def refuse(self, seed: str, target: str, reason: str) -> None:
        """Count a redirect, if an argument about hosts or ``allow`` is the reason."""
        if reason not in _ARGUMENTS:
            return
        self._count += 1
        if self._count <= _NAMED:
            self._named.append(f"{seed} to {target} ({_ARGUMENTS[reason]})")

    def warning(self) -> str:
        """Return the redirects with the way out; "" if none was refused."""
        if not self._count:
            return ""
        rest = self._count - len(self._named)
        named = ", ".join([*self._named, *([f"{rest:,} more"] if rest else [])])
        return (
            f"Redirects of seeds lead out of the scope and were not followed: {named}. Give the"
            " targets as seeds, or begin a new JOBDIR with a wider scope"
        )
