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
    """The steps by which a node comes to its ``target`` weight, 0 to leave.

    ``part`` is the share of all domains, 0 to 1, that one step moves. It never falls below
    ``least``: a step takes some seconds even if no host moves, so slow steps would shrink to zero.
    """

    target: Weight
    part: float = 1.0
    least: float = 0.0
    _begun: float = inf

    @classmethod
    def among(cls, target: Weight, urls: int) -> Steps:
        """Return the steps in a cluster whose nodes together have ``urls`` URLs."""
        first = FIRST_URLS / max(urls, FIRST_URLS)
        return cls(target, first, first)

    def next(self, weight: Weight, others: Weight, now: float) -> Weight:
        """Begin a step, with the sum of the weights of the ``others``; return the new weight.

        By the seconds that the last step took, this one is larger or smaller.
        """
        if now > self._begun:
            change = STEP_SECONDS / (now - self._begun)
            change = min(max(change, 1 / _CHANGE_MAX), _CHANGE_MAX)
            self.part = max(change * self.part, self.least)
        self._begun = now
        return self.after(weight, others)

    def after(self, weight: Weight, others: Weight) -> Weight:
        """Return the weight after a step from this one."""
        if not others:
            return self.target
        share = weight / (weight + others)
        change = self.target / (self.target + others) - share
        if abs(change) <= self.part:
            return self.target
        share += copysign(self.part, change)
        points, new = int(weight * POINTS), floor(others * share / (1 - share) * POINTS)
        new = max(new, points + 1) if change > 0 else min(new, points - 1)
        whole, rest = divmod(new, POINTS)
        return new / POINTS if rest else whole
