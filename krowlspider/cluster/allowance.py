"""The pages of the cluster's budget that this node may fetch, taken in portions in advance."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from krowlspider.cluster.membership import UnansweredError

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.cluster.signals import Budget

# A portion is this part of the budget, and at most so many pages: what a node that dies may leave
# unfetched.
_PART = 200
_MOST = 500
# Seconds between two looks, and before the next try after a refusal: others may give pages back.
_AGAIN = 1.0


class Allowance:
    """The part of ``budget`` that this node has taken.

    ``left`` pages may be fetched now. ``spent``: nothing is left on any node. While the budget's
    server does not answer, nothing is added.
    """

    def __init__(self, budget: Budget, *, again: float = _AGAIN) -> None:
        self._budget = budget
        self._portion = max(1, min(_MOST, budget.limit // _PART))
        self._again = again
        self.left = 0
        self.spent = False
        self._low = asyncio.Event()

    def take(self) -> None:
        """Count a page that is being fetched."""
        self.left -= 1
        if 2 * self.left <= self._portion:
            self._low.set()

    def give_back(self) -> None:
        """Count a page that was taken and not fetched."""
        self.left += 1

    async def run(
        self, on_change: Callable[[], None], wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Run until cancelled. While no pages are ``wanted``, those left are given back.

        ``on_change`` is called when there are pages again, and when ``spent`` has changed.
        """
        while True:
            self._low.clear()
            before = self.left > 0, self.spent
            is_wanted = wanted()
            with suppress(UnansweredError):
                await (self._fill() if is_wanted else self._release())
            if before[1] != self.spent or (is_wanted and not before[0] and self.left > 0):
                on_change()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._again):
                    await self._low.wait()

    async def _fill(self) -> None:
        if self.left < self._portion:
            self.left += await self._budget.take(self._portion - self.left)
            self.spent = not self.left

    async def _release(self) -> None:
        await self._give_all_back()
        self.spent = await self._budget.taken() >= self._budget.limit

    async def _give_all_back(self) -> None:
        left, self.left = self.left, 0
        if left:
            await self._budget.give_back(left)

    async def close(self, *, over: bool = False) -> None:
        """Give back what was not fetched, after `run` has ended.

        If the crawl is ``over``, the next one may take all pages again.
        """
        with suppress(UnansweredError):
            await self._give_all_back()
            if over:
                await self._budget.reset()
