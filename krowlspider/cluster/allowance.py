"""The pages of the cluster's budget that this node may still fetch, taken in portions before they are needed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from krowlspider.cluster.membership import UnansweredError

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.cluster.signals import Budget

# A portion is this part of the budget, and no more pages than these: what a node that dies may leave unfetched.
_PART = 200
_MOST = 500
# Seconds between two looks whether there is anything to fetch here, and from a refusal to the next try: others may give
# pages back.
_AGAIN = 1.0


class Allowance:
    """Of a ``budget`` of ``limit`` pages. ``left`` is what may be fetched now; ``spent`` that there is nothing left anywhere.

    ``on_change`` is called when there are pages again, and when there are none any more. While nobody answers, no more
    than what is left here is fetched. What is left goes back when none are ``wanted``.
    """

    def __init__(
        self,
        budget: Budget,
        limit: int,
        on_change: Callable[[], None],
        *,
        wanted: Callable[[], bool] = lambda: True,
        again: float = _AGAIN,
    ) -> None:
        self._budget = budget
        self._limit = limit
        self._portion = max(1, min(_MOST, limit // _PART))
        self._on_change = on_change
        self._wanted = wanted
        self._again = again
        self.left = 0
        self.spent = False
        self._low = asyncio.Event()

    def take(self) -> None:
        """One page is fetched."""
        self.left -= 1
        if 2 * self.left <= self._portion:
            self._low.set()

    def give_back(self) -> None:
        """It was not."""
        self.left += 1

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._low.clear()
            is_wanted = self._wanted()
            with suppress(UnansweredError):
                await (self._fill() if is_wanted else self._rest())
            with suppress(TimeoutError):
                async with asyncio.timeout(self._again):
                    await self._low.wait()

    async def _fill(self) -> None:
        """:raises UnansweredError:"""
        if self.left >= self._portion:
            return
        got = await self._budget.take(self._portion - self.left)
        had, self.left = self.left, self.left + got
        self._changed(spent=not self.left, more=bool(got and not had))

    async def _rest(self) -> None:
        """:raises UnansweredError: pages may be lost"""
        left, self.left = self.left, 0
        if left:
            await self._budget.give_back(left)
        self._changed(spent=await self._budget.taken() >= self._limit, more=False)

    def _changed(self, *, spent: bool, more: bool) -> None:
        before, self.spent = self.spent, spent
        if more or before != spent:
            self._on_change()

    async def close(self) -> None:
        """Leave to others what was not fetched; `run` has ended."""
        left, self.left = self.left, 0
        if left:
            with suppress(UnansweredError):
                await self._budget.give_back(left)
