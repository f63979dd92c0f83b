"""A budget in this process, which a test can make fail."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from krowlspider.cluster.membership import UnansweredError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Purse:
    """What stands in for a budget is held, in test_signals, to what the real ones are held to."""

    def __init__(self, limit: int, pocket: Pocket | None = None):
        self.limit = limit
        self.answers = True
        self._pocket = pocket or Pocket()

    @property
    def spent(self) -> int:
        return self._pocket.spent

    @spent.setter
    def spent(self, pages: int) -> None:
        self._pocket.spent = pages

    async def take(self, pages: int) -> int:
        self._answer()
        granted = max(0, min(pages, self.limit - self.spent))
        self.spent += granted
        return granted

    async def give_back(self, pages: int) -> None:
        self._answer()
        self.spent = max(0, self.spent - pages)

    async def taken(self) -> int:
        self._answer()
        return self.spent

    async def reset(self) -> None:
        self._answer()
        self.spent = 0

    def _answer(self) -> None:
        if not self.answers:
            raise UnansweredError("it is down")


@dataclass
class Pocket:
    """What all users of a budget have taken."""

    spent: int = 0

    @asynccontextmanager
    async def budget(self, limit: int) -> AsyncIterator[Purse]:
        yield Purse(limit, self)
