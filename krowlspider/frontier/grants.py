"""What this node may use of the limits of sheets that all nodes of a cluster share.

A grant is a part of a limit that no other node may use. It is on disk before it is used, so after a
death this node goes on with what it had not used. The register of the cluster has the sum of all
grants: `krowlspider.job.nodes.sheet_limits` asks there.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from krowlspider.frontier.store.schema import grant_key
from krowlspider.frontier.store.store import put

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Store

# Grants in memory, about 300 bytes each; those that were not asked for the longest are forgotten.
_KEPT = 65_536
# Seconds after which a grant that nobody asks for is given back.
_IDLE = 3.0
# The most pages and bytes that are taken at a time.
_MOST = {"max_pages": 500, "max_bytes": 64 * 1024 * 1024}
_RECORD = Struct(">QQ")


@dataclass(slots=True, eq=False)
class Grant:
    """A limit of a sheet, and what this node may use of it.

    ``granted`` includes what is used already. ``spent_at`` is the limit that all nodes had used up,
    0 for none. ``waiting`` counts the pages that were held back since the last look at the
    register. ``began`` is when the first page of the sheet was begun at any node, in epoch seconds;
    0 before. ``is_known``: the register was asked about it in this process.
    """

    sheet: str
    reason: str
    limit: int
    granted: int = 0
    spent_at: int = 0
    waiting: int = 0
    asked: float = 0.0
    began: float = 0.0
    is_known: bool = False
    must_look: bool = False

    @property
    def is_spent(self) -> bool:
        """Return whether all nodes together have used up the limit."""
        return self.spent_at >= self.limit


class Grants:
    """The grants of a node; ``clock`` returns monotonic seconds. ``portion_of`` returns what is
    taken at a time, given the most that may be, and the limit.

    ``low`` is set when the register must be asked: see `to_look`.
    """

    def __init__(
        self, store: Store, clock: Callable[[], float], portion_of: Callable[[int, int], int]
    ):
        self._store = store
        self._clock = clock
        self._portion_of = portion_of
        self._grants: dict[tuple[str, str], Grant] = {}
        self.low = asyncio.Event()

    def of(self, sheet: str, reason: str, limit: float) -> Grant:
        """Return the grant of a limit; ``limit`` is that of the sheet in force."""
        if (grant := self._grants.get((sheet, reason))) is None:
            saved = self._store.get(grant_key(sheet, reason))
            granted, spent_at = _RECORD.unpack(saved) if saved else (0, 0)
            grant = Grant(sheet, reason, 0, granted, spent_at)
            if len(self._grants) >= _KEPT:
                del self._grants[next(iter(self._grants))]
            self._grants[sheet, reason] = grant
        grant.limit = int(limit)
        return grant

    def portion(self, grant: Grant) -> int:
        """Return what is taken at a time."""
        return self._portion_of(_MOST[grant.reason], grant.limit)

    def ask(self, grant: Grant, left: int) -> bool:
        """Return whether a page may be begun, with so much of the grant left; otherwise the page
        waits until the register was asked."""
        grant.asked = self._clock()
        if left <= 0 and grant.waiting < _MOST["max_pages"]:
            grant.waiting += 1
        if 2 * left <= self.portion(grant) and not grant.is_spent:
            self._look(grant)
        return left > 0

    def ask_when(self, grant: Grant) -> bool:
        """Return whether it is known when the first page of the sheet was begun."""
        if not grant.is_known:
            self._look(grant)
        return grant.is_known

    def publish(self, grant: Grant) -> None:
        """Have the register told that the first page of this node was begun."""
        self._look(grant)

    def _look(self, grant: Grant) -> None:
        if not grant.must_look:
            # The last ones stay in memory.
            self._grants.pop((grant.sheet, grant.reason), None)
            self._grants[grant.sheet, grant.reason] = grant
            grant.must_look = True
            self.low.set()

    def to_look(self) -> list[Grant]:
        """Return the grants of which the register must be asked."""
        return [grant for grant in self._grants.values() if grant.must_look]

    def idle(self) -> list[Grant]:
        """Return the grants that nobody has asked for in the last seconds."""
        end = self._clock() - _IDLE
        return [grant for grant in self._grants.values() if 0 < grant.asked <= end]

    def all(self) -> list[Grant]:
        """Return the grants in memory."""
        return list(self._grants.values())

    def set(self, grant: Grant, granted: int, *, is_spent: bool = False) -> None:
        """Change a grant, on disk too: a killed process leaves it there."""
        grant.granted = granted
        grant.spent_at = grant.limit if is_spent else 0
        key = grant_key(grant.sheet, grant.reason)
        put(self._store, key, _RECORD.pack(granted, grant.spent_at))
