"""How much work a call is, in CPU seconds of a machine that has nothing else to do.

A machine that is slow or busy does each call slower: its caches and its cores are shared. So each
measurement stands beside one of a reference, in the same thread, and is divided by how much slower
than usual the reference was.
"""

from __future__ import annotations

import gc
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds that the reference takes on a core of 2023 that does nothing else.
_USUAL = 0.0012
_TEXT = b"".join(b'<p class="c%d"><a href="/l/%d?q=%d">x</a>' % (n, n, n) for n in range(2_000))
_TAG = re.compile(rb"<a\s[^>]*href=\"([^\"]*)\"")


def seconds(call: Callable[[], object], tries: int = 3, enough: float = 0.0) -> float:
    """Return the least of some tries, or the first that takes no longer than ``enough``.

    The garbage collector is off meanwhile.
    """
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


def slowness() -> float:
    """Return how many times slower than usual this thread is now; 1 at least."""
    return max(1.0, _timed(_reference) / _USUAL)


def _once(call: Callable[[], object]) -> float:
    before = slowness()
    took = _timed(call)
    return took / max(before, slowness())


def _timed(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


def _reference() -> int:
    """Scan a text by a regular expression, and work on what is found in Python."""
    found = {}
    for place in _TAG.findall(_TEXT):
        path, _, query = place.decode().partition("?")
        found[path] = query.split("=")[-1]
    return sum(map(int, found.values()))
