"""Account for the bytes of bodies in memory: received, decoded, read, or waiting for the archive.

Over ``line``, bodies that are not small wait: reading from their sockets is paused. Over ``limit``
no new request begins. The fetch that has waited longest goes on all the same until its page is
over, so that one always ends.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Bytes that a fetch may hold however full the account is, counted as received and again as its
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
        self.held = 0
        self.waits = 0
        self.keeps_out = False
        """Whether `admits` has refused a request and none may begin yet."""
        self._on_room = on_room
        # The bytes each fetch needs and the callback that resumes it; first come, first served.
        self._waiting: OrderedDict[Held, tuple[int, Callable[[], None]]] = OrderedDict()
        # The fetch that goes on without room.
        self._runner: Held | None = None

    def admits(self) -> bool:
        """Return whether a new request may begin. If not, ``on_room`` is called once it may."""
        if self.held <= self.limit:
            return True
        self.waits += not self.keeps_out
        self.keeps_out = True
        return False

    def grow(self, size: int) -> None:
        """Count ``size`` bytes put into memory. Call `shrink` when they are gone."""
        self.held += size

    def shrink(self, size: int) -> None:
        """Count ``size`` bytes as gone; fetches that wait go on as far as there is room."""
        self.held -= size
        if self._waiting or self.keeps_out:
            self._room_made()

    def _room_made(self) -> None:
        expected = self.held
        while self._waiting:
            held, (need, go_on) = next(iter(self._waiting.items()))
            expected += need
            if expected > self.line:
                if self._runner is not None:
                    break
                self._runner = held
            del self._waiting[held]
            go_on()
        if self.keeps_out and self.held <= self.limit:
            self.keeps_out = False
            self._on_room()


class Held:
    """The bytes that one fetch holds in ``memory``, from its first byte until its page is over.

    ``waited`` is true if it has waited for others and `has_waited` has not cleared that.
    """

    __slots__ = ("memory", "size", "waited")

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.size = 0
        self.waited = False

    def receive(self, size: int) -> None:
        """Count ``size`` received bytes twice: for the response and for its body."""
        self.size += 2 * size
        self.memory.held += 2 * size

    def become(self, size: int) -> None:
        """Hold ``size`` bytes instead of the bytes held before."""
        before, self.size = self.size, size
        self.memory.shrink(before - size)

    def must_wait(self, more: int = 0) -> bool:
        """Return whether the fetch must `wait` before it holds ``more`` bytes."""
        memory = self.memory
        is_full = memory.held + more > memory.line and self.size + more > SMALL
        return is_full and memory._runner is not self

    def wait(self, need: int, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` when there is room for ``need`` bytes; perhaps at once.

        One fetch goes on without room: the first in line, if no other does so already.
        """
        self.waited = True
        self.memory.waits += 1
        self.memory._waiting[self] = need, go_on
        self.memory._room_made()

    def has_waited(self) -> bool:
        """Return whether the fetch waits now, or has waited since the last call."""
        waited, self.waited = self.waited, self in self.memory._waiting
        return waited

    def leave(self) -> None:
        """Stop waiting."""
        self.memory._waiting.pop(self, None)

    def over(self) -> None:
        """Release all that the fetch holds."""
        self.leave()
        if self.memory._runner is self:
            self.memory._runner = None
        self.become(0)
