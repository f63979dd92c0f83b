"""Work of a thread in slices that leave the event loop its turns."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_T = TypeVar("_T")
# Items worked on at a time, 1 to 2 ms, and seconds that the event loop gets after them.
SLICE = 200
_PAUSE = 0.0002


def in_slices(items: Iterable[_T], size: int = SLICE) -> Iterator[list[_T]]:
    """Yield the items in lists of at most ``size``. Sleep between two lists.

    Without the sleep each turn of the event loop waits for the interpreter for 5 ms.
    """
    left = iter(items)
    while some := list(islice(left, size)):
        yield some
        time.sleep(_PAUSE)
