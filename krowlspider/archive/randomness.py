"""Random bytes for the ids of records."""

from __future__ import annotations

import os

# Bytes of an id: a UUID has 16.
_ID = 16
# Bytes taken from the kernel at a time: a system call for each id was 1 % of a crawl.
_POOL = 256 * _ID


class RandomIds:
    """16 bytes of the kernel's randomness at a time. For one thread only."""

    def __init__(self) -> None:
        self._pool = b""
        self._next = 0

    def take(self) -> bytes:
        if self._next == len(self._pool):
            self._pool = os.urandom(_POOL)
            self._next = 0
        start, self._next = self._next, self._next + _ID
        return self._pool[start : self._next]
