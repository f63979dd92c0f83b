"""Whether a target takes longer for an input than it may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.work import seconds

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

# Tries of what seems to take too long, so that nothing else is to blame.
_TRIES = 5


def bound(target: Target, data: bytes) -> float:
    """The seconds that a target may take."""
    return target.floor + target.per_byte * len(data)


def excess(target: Target, data: bytes) -> str | None:
    """By how much an input is over the bound of its target; None when it is not."""
    most = bound(target, data)
    took = seconds(lambda: target.run(data), _TRIES, most)
    if took <= most:
        return None
    return f"{len(data)} bytes take {took:.3f} s, more than {most:.3f} s"
