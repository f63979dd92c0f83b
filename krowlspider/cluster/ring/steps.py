"""How a node joins or leaves a cluster with much to hand over: its weight changes in steps. Pure.

Each step changes the ring. Only the domains of the step rest while they are handed over; their
owners go on fetching the others until their step comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import copysign, floor, inf
from typing import TYPE_CHECKING

from krowlspider.cluster.ring.ring import POINTS

if TYPE_CHECKING:
    from krowlspider.cluster.ring.ring import Weight

# URLs, queued or done, of the domains of the first step.
FIRST_URLS = 20_000
# Seconds that a step is to take.
STEP_SECONDS = 20.0
# Most by which one step is larger than the last, or smaller.
_CHANGE_MAX = 4.0


@dataclass
class Steps:
    """The steps by which a node comes to the weight ``to``, 0 to leave.

    ``part`` is the part of all domains that moves in one step.
    """

    to: Weight
    part: float = 1.0
    _begun: float = inf

    @classmethod
    def among(cls, to: Weight, urls: int) -> Steps:
        """Return the steps in a cluster whose nodes have so many ``urls``."""
        return cls(to, FIRST_URLS / max(urls, FIRST_URLS))

    def next(self, weight: Weight, others: Weight, now: float) -> Weight:
        """Begin a step, with the sum of the weights of the ``others``; return the new weight.

        By the seconds that the last step took, this one is larger or smaller.
        """
        if now > self._begun:
            change = STEP_SECONDS / (now - self._begun)
            self.part *= min(max(change, 1 / _CHANGE_MAX), _CHANGE_MAX)
        self._begun = now
        return self.after(weight, others)

    def after(self, weight: Weight, others: Weight) -> Weight:
        """Return the weight after a step from this one."""
        if not others:
            return self.to
        share = weight / (weight + others)
        way = self.to / (self.to + others) - share
        if abs(way) <= self.part:
            return self.to
        share += copysign(self.part, way)
        points, new = int(weight * POINTS), floor(others * share / (1 - share) * POINTS)
        new = max(new, points + 1) if way > 0 else min(new, points - 1)
        whole, rest = divmod(new, POINTS)
        return new / POINTS if rest else whole
