"""How many requisites of each host may still be queued in this run."""

from __future__ import annotations

from collections import OrderedDict

# Hosts that are counted; the one that was counted least recently is forgotten first.
_HOSTS = 16_384
# Above the priority of pages: what a page needs is fetched before the next page of its host.
REQUISITE_PRIORITY = 1


class RequisiteBudget:
    """Counts the requisites of each host, at most ``most``; 0: no limit."""

    def __init__(self, most: int):
        self._most = most
        self._counts: OrderedDict[str, int] = OrderedDict()

    def take(self, host: str) -> bool:
        """Count one more requisite of a host; return False, with nothing counted, if it has no
        room."""
        if not self._most:
            return True
        count = self._counts.pop(host, 0)
        has_room = count < self._most
        self._counts[host] = count + has_room
        if len(self._counts) > _HOSTS:
            self._counts.popitem(last=False)
        return has_room
