"""The page budget of a cluster: each node takes portions of it in advance.

A node that dies, or a lost answer, may leave a portion unfetched.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.tasks import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.cluster.signals import SharedKeys

# The key with the number of pages that all nodes have taken.
PAGES = "pages"
# A portion is this part of the budget, and at most so many pages.
_PART = 200
_MOST = 500
# Seconds between two looks, and before the next try after a refusal: others may give pages back.
_AGAIN = 1.0


async def pages_taken(keys: SharedKeys) -> int:
    """Return how many pages all nodes have taken and not given back.

    :raises UnansweredError: the server does not answer, or the key holds no number
    """
    try:
        return int(await keys.get(PAGES) or 0)
    except ValueError as error:
        raise UnansweredError(f"the key {PAGES!r} of the cluster holds no number") from error


class Allowance:
    """The part of the budget of ``limit`` pages that this node has taken.

    ``pages_left`` pages may be fetched now. ``spent``: nothing is left on any node. While the
    server of ``keys`` does not answer, nothing is added.
    """

    def __init__(self, keys: SharedKeys, limit: int, *, again: float = _AGAIN) -> None:
        self._keys = keys
        self._limit = limit
        self._portion = max(1, min(_MOST, limit // _PART))
        self._again = again
        self.pages_left = 0
        self.spent = False
        self._low = asyncio.Event()

    def take(self) -> None:
        """Count a page that is being fetched."""
        self.pages_left -= 1
        if 2 * self.pages_left <= self._portion:
            self._low.set()

    def give_back(self) -> None:
        """Count a page that was taken and not fetched."""
        self.pages_left += 1

    async def run(self, on_change: Callable[[], None], wanted: Callable[[], bool]) -> None:
        """Run until cancelled. While no pages are ``wanted``, those left are given back.

        ``on_change`` is called when there are pages again, and when ``spent`` has changed.
        """
        while True:
            self._low.clear()
            had_pages, was_spent, is_wanted = self.pages_left > 0, self.spent, wanted()
            with suppress(UnansweredError):
                await (self._fill() if is_wanted else self._release())
            if was_spent != self.spent or (is_wanted and not had_pages and self.pages_left > 0):
                on_change()
            await wait_for(self._low, self._again)

    async def _fill(self) -> None:
        if self.pages_left < self._portion:
            # Pages are taken meanwhile: read ``pages_left`` after the answer, not before.
            portion = await self._keys.add(PAGES, self._portion - self.pages_left, self._limit)
            self.pages_left += portion
            self.spent = not self.pages_left

    async def _release(self) -> None:
        await self._give_all_back()
        self.spent = await pages_taken(self._keys) >= self._limit

    async def _give_all_back(self) -> None:
        left, self.pages_left = self.pages_left, 0
        if left:
            await self._keys.add(PAGES, -left, self._limit)

    async def close(self, *, over: bool = False) -> None:
        """Give back what was not fetched, after `run` has ended.

        If the crawl is ``over``, the next one may take all pages again.
        """
        with suppress(UnansweredError):
            await self._give_all_back()
            if over:
                await self._keys.delete(PAGES)
