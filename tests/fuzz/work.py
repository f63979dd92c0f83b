"""How much work a call is: seconds of CPU of this thread, the best of some tries, without the garbage collector."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def seconds(call: Callable[[], object], tries: int = 3) -> float:
    enabled = gc.isenabled()
    gc.disable()
    try:
        return min(_once(call) for _ in range(tries))
    finally:
        if enabled:
            gc.enable()


def _once(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start
