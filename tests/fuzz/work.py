"""How much work a call is: seconds of CPU of this thread, the best of some tries, without the
garbage collector."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.targets import Target

# Tries of what seems to take too long, so that nothing else is to blame.
_TRIES = 5


def seconds(call: Callable[[], object], tries: int = 3, enough: float = 0.0) -> float:
    """The least of some tries, or the first that takes no longer than ``enough``."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        least = _once(call)
        while tries > 1 and least > enough:
            least, tries = min(least, _once(call)), tries - 1
        return least
    finally:
        if enabled:
            gc.enable()


def _once(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


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
