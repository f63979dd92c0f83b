"""How long a host rests for the time that its turn took of the event loop.

One host cannot starve the others, and many hosts cannot together.
"""

from __future__ import annotations

# Seconds of the loop above which a turn makes its host rest. An ordinary turn takes a tenth.
NOTICED = 0.002
# Seconds above which reading a page makes its host rest. An ordinary page takes a tenth. No share
# for all together: the large pages of many ordinary hosts are what such a crawl is for.
HEAVY = 0.01
# A host rests so many times as long as its turn took: it has 3 % of the loop at most.
RESTS = 32
# Share of the loop for all turns that send no request, or are above NOTICED. Names cost a
# hostile site nothing, so a share for each host alone would not hold.
SHARE = 0.25
# Seconds whose share may be used at once.
_BURST = 1.0
# Seconds that the line is long at most: who comes last may have had no part in it.
_LINE = 60.0
# Seconds of a turn that count at most: a process may be stopped for an hour in the midst of one.
_COUNTED_MAX = 1.0


class LoopCost:
    """Places in one line for all turns that are charged. Times are in seconds of one clock."""

    def __init__(self) -> None:
        # When the turns so far will be no more than their share of the time.
        self._even = 0.0

    def rest(self, took: float, now: float) -> float:
        """Charge a turn that took so long and ends ``now``; return how long its host rests."""
        took = min(took, _COUNTED_MAX)
        self._even = min(max(self._even, now - _BURST) + took / SHARE, now + _LINE)
        return max(self._even - now, alone(took) if took > NOTICED else 0.0, 0.0)


def alone(took: float) -> float:
    """Return how long a host rests for a turn, or a page, whatever the others take."""
    return min(took, _COUNTED_MAX) * RESTS
