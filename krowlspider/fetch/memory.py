"""Account for the bytes of bodies in memory: received, decoded, read, or waiting for the archive.

Over ``line``, bodies that are not small wait: reading from their sockets is paused. Over ``limit``
no new request begins. The fetch that has waited longest still goes on until its page is
over, so that one always ends.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Bytes that a fetch may take however full the account is, counted as received and again as its
# body. Ordinary pages never wait for large ones.
SMALL = 256 * 1024
# At most one part in this many of the limit is kept free for small fetches.
_FOR_SMALL = 4
# Bytes that a transfer is expected to add before the next check: one read of a socket, counted
# twice.
READ = 512 * 1024


class Memory:
    """Account of at most ``limit`` bytes, plus what is in progress when the limit is reached.

    That is one read of each of ``most`` fetches at a time, and one body. ``on_room`` is called when
    requests may begin again after `admits` has refused one. ``waits`` counts the times that a body,
    or the next request, had to wait.
    """

    def __init__(
        self, limit: float = inf, most: int = 1, on_room: Callable[[], None] = lambda: None
    ) -> None:
        self.limit = limit
        self.line = limit - min(limit / _FOR_SMALL, most * SMALL) if limit < inf else inf
        self.used = 0
        self.waits = 0
        self.keeps_out = False
        """Whether `admits` has refused a request and none may begin yet."""
        self._on_room = on_room
        # The bytes each fetch needs and the callback that resumes it; first come, first served.
        self._waiting: OrderedDict[FetchMemory, tuple[int, Callable[[], None]]] = OrderedDict()
        # The fetch that goes on without room.
        self._runner: FetchMemory | None = None

    def admits(self) -> bool:
        """Return whether a new request may begin. If not, ``on_room`` is called once it may."""
        if self.used <= self.limit:
            return True
        self.waits += not self.keeps_out
        self.keeps_out = True
        return False

    def grow(self, size: int) -> None:
        """Count ``size`` bytes put into memory. Call `shrink` when they are gone."""
        self.used += size

    def shrink(self, size: int) -> None:
        """Count ``size`` bytes as gone; fetches that wait go on as far as there is room."""
        self.used -= size
        if self._waiting or self.keeps_out:
            self._room_made()

    def _room_made(self) -> None:
        expected = self.used
        while self._waiting:
            fetch, (need, go_on) = next(iter(self._waiting.items()))
            expected += need
            if expected > self.line:
                if self._runner is not None:
                    break
                self._runner = fetch
            del self._waiting[fetch]
            go_on()
        if self.keeps_out and self.used <= self.limit:
            self.keeps_out = False
            self._on_room()


class FetchMemory:
    """The bytes that one fetch has in memory, from its first byte until its page is over.

    ``waited`` is true if it has waited for others and `has_waited` has not cleared that.
    ``loaded`` counts a body that was loaded from a file in an account of such bodies.
    """

    __slots__ = ("_account", "loaded", "size", "waited")

    def __init__(self, account: Memory) -> None:
        self._account = account
        self.size = 0
        self.waited = False
        self.loaded: FetchMemory | None = None

    def receive(self, size: int) -> None:
        """Count ``size`` received bytes twice: for the response and for its body."""
        self.size += 2 * size
        self._account.used += 2 * size

    def resize(self, size: int) -> None:
        """Count ``size`` bytes instead of those counted before."""
        before, self.size = self.size, size
        self._account.shrink(before - size)

    def must_wait(self, more: int = 0) -> bool:
        """Return whether the fetch must `wait` before it takes ``more`` bytes."""
        account = self._account
        is_full = account.used + more > account.line and self.size + more > SMALL
        return is_full and account._runner is not self

    def wait(self, need: int, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` when there is room for ``need`` bytes; perhaps immediately.

        One fetch goes on without room: the first in line, if no other does so already.
        """
        self.waited = True
        self._account.waits += 1
        self._account._waiting[self] = need, go_on
        self._account._room_made()

    def has_waited(self) -> bool:
        """Return whether the fetch waits now, or has waited since the last call."""
        waited, self.waited = self.waited, self in self._account._waiting
        return waited

    def stop_waiting(self) -> None:
        """Forget the callback of `wait`."""
        self._account._waiting.pop(self, None)

    def release(self) -> None:
        """Count all bytes of the fetch as gone."""
        self.stop_waiting()
        if self._account._runner is self:
            self._account._runner = None
        self.resize(0)
        if self.loaded is not None:
            self.loaded.release()
