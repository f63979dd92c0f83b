"""Compute how long a host rests for the event loop time that its work took.

The rest keeps one host from starving the others, and many hosts together from starving the crawl.
"""

from __future__ import annotations

# Seconds of the event loop above which work makes its host rest. Ordinary work takes a tenth.
NOTICED = 0.002
# Seconds above which reading a page makes its host rest; an ordinary page takes a tenth. Pages do
# not count against SHARE: large pages of many ordinary hosts are normal.
HEAVY = 0.01
# A host rests this many times as long as its work took, so it gets 3 % of the loop at most.
RESTS = 32
# Share of the loop for all work passed to `LoopCost.rest` together. New host names cost a hostile
# site nothing, so a limit for each host alone would not hold.
SHARE = 0.25
# Seconds whose share may be used in one go, after a time without charged work.
_BURST = 1.0
# Longest queue in seconds: the last host in it may have caused none of the queued work.
_LINE = 60.0
# Seconds of one piece of work that count at most: a process may be suspended for an hour within it.
_COUNTED_MAX = 1.0


class LoopCost:
    """One queue of charged work, shared by all hosts. All times are seconds of one clock."""

    def __init__(self) -> None:
        # The time at which the work charged so far equals its share of the elapsed time.
        self._even = 0.0

    def rest(self, took: float, now: float) -> float:
        """Charge ``took`` seconds of work that end at ``now``; return the seconds its host rests.

        Work up to ``NOTICED`` counts only against ``SHARE``.
        """
        took = min(took, _COUNTED_MAX)
        self._even = min(max(self._even, now - _BURST) + took / SHARE, now + _LINE)
        return max(self._even - now, own_rest(took) if took > NOTICED else 0.0, 0.0)


def own_rest(took: float) -> float:
    """Return the seconds a host rests for work of ``took`` seconds, not counted against SHARE."""
    return min(took, _COUNTED_MAX) * RESTS
