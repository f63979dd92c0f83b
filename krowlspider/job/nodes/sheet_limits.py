"""The limits of whole sheets, which all nodes of a cluster use up together.

The register has the sum of the grants of all nodes for each limit, and when the first page of a
sheet was begun. A node asks for a grant when a page waits for it, and gives back what it has not
used for some seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from krowlspider.cluster.membership import UnansweredError, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.cluster.membership import SharedKeys
    from krowlspider.frontier.grants import Grant
    from krowlspider.frontier.quotas import Quotas

# Seconds between two looks at what is left of a limit that is used up; and the number of looks that
# find nothing before pages are dropped: until then, other nodes may give back what they have not
# used.
_AGAIN = 1.0
_LOOKS = 6


class SheetLimits:
    """Takes grants for the limits of the sheets of a node, whose ``quotas`` have grants.

    While the server of ``keys`` does not answer, nothing is added, and pages of such sheets wait.
    """

    def __init__(self, keys: SharedKeys, quotas: Quotas, *, again: float = _AGAIN) -> None:
        assert quotas.grants is not None
        self._keys = keys
        self._quotas = quotas
        self._grants = quotas.grants
        self._again = again
        # The looks in a row that found nothing left, and the time of the next one, in seconds of
        # the event loop, by the name of the limit.
        self._empty: dict[str, tuple[int, float]] = {}

    async def run(self, on_change: Callable[[], None]) -> None:
        """Run until cancelled. ``on_change`` is called when pages need not wait any more."""
        while True:
            self._grants.low.clear()
            try:
                if await self._look_at_all():
                    on_change()
            except UnansweredError:
                await asyncio.sleep(self._again)
            for grant in self._grants.idle():
                await self._release(grant)
            await wait_for(self._grants.low, self._again)

    async def _look_at_all(self) -> bool:
        """Ask the register about all grants that need it; return whether that helps a page."""
        now, changed = asyncio.get_running_loop().time(), False
        for grant in self._grants.to_look():
            if self._empty.get(_name(grant), (0, 0.0))[1] <= now:
                changed |= await self._look(grant)
        return changed

    async def _look(self, grant: Grant) -> bool:
        """Ask the register; return whether pages need not wait for it any more."""
        if grant.reason == "max_seconds":
            return await self._learn_begin(grant)
        if not grant.is_known:
            await self._announce(grant)
        return await self._fill(grant)

    async def _learn_begin(self, grant: Grant) -> bool:
        grant.must_look = False
        name, own = _name(grant), self._quotas.began(grant.sheet)
        try:
            text = await self._keys.get(name)
            if text is None and own:
                # In milliseconds. Two nodes that begin at the same moment may both write.
                began = int(own * 1000)
                await self._keys.add(name, began, began)
                text = await self._keys.get(name)
        except UnansweredError:
            grant.must_look = True
            raise
        grant.began = int(text or 0) / 1000
        was_known, grant.is_known = grant.is_known, True
        return not was_known

    async def _announce(self, grant: Grant) -> None:
        """Add what this node has, if the register does not have it: it has lost its data, or the
        pages were fetched when each node counted for itself."""
        used = self._quotas.used(grant)
        missing = max(0, used - grant.granted)
        if grant.granted and await self._keys.get(_name(grant)) is None:
            missing += grant.granted
        if missing:
            await self._keys.add(_name(grant), missing, sys.maxsize)
        if used > grant.granted:
            self._grants.set(grant, used)
        grant.is_known = True

    async def _fill(self, grant: Grant) -> bool:
        name, waiting = _name(grant), grant.waiting
        wanted = max(self._grants.portion(grant), waiting) - self._quotas.left(grant)
        grant.waiting, grant.must_look = 0, False
        if wanted <= 0:
            return True
        try:
            added = await self._keys.add(name, wanted, grant.limit)
        except UnansweredError:
            grant.must_look = True
            raise
        if added:
            self._grants.set(grant, grant.granted + added)
        if self._quotas.left(grant) > 0:
            self._empty.pop(name, None)
            return True
        looks = self._empty.pop(name, (0, 0.0))[0] + 1
        if looks == _LOOKS:
            self._grants.set(grant, grant.granted, is_spent=True)
            return True
        self._empty[name] = looks, asyncio.get_running_loop().time() + self._again
        grant.must_look = True
        return False

    async def _release(self, grant: Grant) -> None:
        """Give back what is not used; if the register does not answer, it stays unused."""
        grant.asked = 0.0
        if grant.reason == "max_seconds" or (left := self._quotas.left(grant)) <= 0:
            return
        # First on disk: after a kill, this node must not use what others have.
        self._grants.set(grant, grant.granted - left)
        with suppress(UnansweredError):
            await self._keys.add(_name(grant), -left, sys.maxsize)

    async def close(self) -> None:
        """Give back what was not used, after `run` has ended."""
        for grant in self._grants.all():
            await self._release(grant)


def _name(grant: Grant) -> str:
    """Return the name of a limit in the register."""
    sheet = hashlib.sha256(grant.sheet.encode()).hexdigest()[:32]
    return f"{sheet}/{grant.reason}"
