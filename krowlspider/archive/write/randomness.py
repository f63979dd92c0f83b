"""Random bytes for record ids."""

from __future__ import annotations

import os

# Bytes of an id, the size of a UUID.
_ID = 16
# Bytes read from the kernel at a time: a system call for each id would be slow.
_POOL = 256 * _ID


class RandomIds:
    """Returns 16 random bytes of the kernel with each `take`. For one thread only."""

    def __init__(self) -> None:
        self._pool = b""
        self._next = 0

    def take(self) -> bytes:
        if self._next == len(self._pool):
            self._pool = os.urandom(_POOL)
            self._next = 0
        start, self._next = self._next, self._next + _ID
        return self._pool[start : self._next]
