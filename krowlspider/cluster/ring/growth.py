"""How a node joins a cluster that has much to hand over: its weight grows step by step. Pure.

Each step changes the ring. Only the domains of the step rest while they are handed over; their
owners go on fetching the others until their step comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, inf
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
class Growth:
    """The steps by which a node comes to its ``full`` weight.

    ``part`` is the part of all domains that moves in one step.
    """

    full: Weight
    part: float = 1.0
    _begun: float = inf

    @classmethod
    def among(cls, full: Weight, urls: int) -> Growth:
        """Return the growth of a node that begins with nothing; all nodes have so many ``urls``."""
        return cls(full, FIRST_URLS / max(urls, FIRST_URLS))

    def step(self, weight: Weight, others: Weight, now: float) -> Weight:
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
        share = weight / (weight + others) + self.part if others else 1.0
        if share >= 1 or (new := others * share / (1 - share)) >= self.full:
            return self.full
        points = max(floor(new * POINTS), int(weight * POINTS) + 1)
        whole, rest = divmod(points, POINTS)
        return points / POINTS if rest else whole
