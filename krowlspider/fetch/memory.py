"""One account of the bytes of bodies in memory: being received, decoded, read, waiting for the
archive.

Over its line, bodies that are not small wait: reading from their sockets is paused. Over its limit
no new request is begun. The one that has waited longest goes on all the same, until its page is
over, so that one always comes to its end.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Bytes that a fetch may hold however full the account is, as received and once more as its body: an
# ordinary page is never kept waiting by large ones.
SMALL = 256 * 1024
# The part of the limit that is left to small ones, at most.
_FOR_SMALL = 4
# What a transfer that goes on is expected to add before it is asked again: one read of a socket,
# twice.
READ = 512 * 1024


class Memory:
    """At most ``limit`` bytes, and what was under way when it was reached: one read of each of
    ``most`` fetches at a time, and one body."""

    __slots__ = ("_kept_out", "_runner", "_waiting", "held", "limit", "line", "on_room", "waits")

    def __init__(self, limit: float = inf, most: int = 1) -> None:
        self.limit = limit
        self.line = limit - min(limit / _FOR_SMALL, most * SMALL) if limit < inf else inf
        self.held = 0
        # Times that a body, or the next request, had to wait.
        self.waits = 0
        # Called when requests may begin again.
        self.on_room: Callable[[], None] | None = None
        # What each needs, and how it goes on; first come, first served.
        self._waiting: OrderedDict[Held, tuple[int, Callable[[], None]]] = OrderedDict()
        self._runner: Held | None = None
        self._kept_out = False

    def admits(self) -> bool:
        """Whether a new request may begin; ``on_room`` is called when it may again."""
        if self.held <= self.limit:
            return True
        if not self._kept_out:
            self._kept_out = True
            self.waits += 1
        return False

    def grow(self, size: int) -> None:
        """Bytes were put into memory: `shrink` is to be called when they are gone."""
        self.held += size

    def shrink(self, size: int) -> None:
        """Bytes are gone; those who wait go on as far as there is room."""
        self.held -= size
        if self._waiting or self._kept_out:
            self._room_made()

    @property
    def keeps_out(self) -> bool:
        """Whether a request has been kept from beginning, and none may yet."""
        return self._kept_out

    def _wait(self, held: Held, need: int, go_on: Callable[[], None]) -> None:
        self.waits += 1
        self._waiting[held] = need, go_on
        self._room_made()

    def _leave(self, held: Held) -> None:
        self._waiting.pop(held, None)

    def _over(self, held: Held) -> None:
        self._leave(held)
        if self._runner is held:
            self._runner = None
        self.shrink(held.size)

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
        if self._kept_out and self.held <= self.limit:
            self._kept_out = False
            if self.on_room is not None:
                self.on_room()


class Held:
    """What one fetch holds, from its first byte until its page is over. ``waited`` tells that it
    had to wait for others."""

    __slots__ = ("memory", "size", "waited")

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.size = 0
        self.waited = False

    def receive(self, size: int) -> None:
        """Count bytes that were received: they are to be the response, and once more its body."""
        self.size += 2 * size
        self.memory.held += 2 * size

    def become(self, size: int) -> None:
        """Hold so many bytes, instead of what it held."""
        before, self.size = self.size, size
        self.memory.shrink(before - size)

    def must_wait(self, more: int = 0) -> bool:
        """Whether it may not go on to hold so many bytes more now: it is to `wait`."""
        memory = self.memory
        return (
            memory.held + more > memory.line
            and self.size + more > SMALL
            and memory._runner is not self
        )

    def wait(self, need: int, go_on: Callable[[], None]) -> None:
        """Have ``go_on`` called when there is room for as much as it needs, or it is the one that
        goes on all the same: perhaps at once."""
        self.waited = True
        self.memory._wait(self, need, go_on)

    def has_waited(self) -> bool:
        """Whether it had to wait since this was last asked, or does so now."""
        waited, self.waited = self.waited, self in self.memory._waiting
        return waited

    def leave(self) -> None:
        """It waits no more."""
        self.memory._leave(self)

    def over(self) -> None:
        """It holds nothing any more."""
        self.memory._over(self)
        self.size = 0
