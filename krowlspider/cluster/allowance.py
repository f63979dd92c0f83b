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
# Seconds from a refusal to the next try: others may give pages back.
_AGAIN = 1.0


class Allowance:
    """Of a ``budget`` of ``limit`` pages. ``left`` is what may be fetched now; ``spent`` that there is nothing left anywhere.

    ``on_change`` is called when there are pages again, and when there are none any more. While nobody answers, no more
    than what is left here is fetched.
    """

    def __init__(self, budget: Budget, limit: int, on_change: Callable[[], None]) -> None:
        self._budget = budget
        self._portion = max(1, min(_MOST, limit // _PART))
        self._on_change = on_change
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
            if self.left < self._portion and not await self._fill():
                await asyncio.sleep(_AGAIN)
                continue
            self._low.clear()
            await self._low.wait()

    async def _fill(self) -> bool:
        """Whether there are enough pages now."""
        try:
            got = await self._budget.take(self._portion - self.left)
        except UnansweredError:
            return False
        had, self.left = self.left, self.left + got
        spent, self.spent = self.spent, not self.left
        if (got and not had) or spent != self.spent:
            self._on_change()
        return got > 0

    async def close(self) -> None:
        """Leave to others what was not fetched; `run` has ended."""
        left, self.left = self.left, 0
        if left:
            with suppress(UnansweredError):
                await self._budget.give_back(left)
