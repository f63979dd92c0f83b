"""Messages that wait in memory to be sent: one that is lost with the process is made again."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Most messages that wait, and their bytes. Further ones are left out.
MESSAGES_MAX = 10_000
BYTES_MAX = 16 << 20


class MemoryOutbox:
    """A `forwarder.Source` that forgets what is sent. ``reaches`` returns whether a node takes
    messages."""

    def __init__(self, reaches: Callable[[str], bool]) -> None:
        self._reaches = reaches
        # By node, then by key.
        self._waiting: dict[str, dict[bytes, bytes]] = {}
        self.count = self.size = 0

    def put(self, node: str, key: bytes, message: bytes) -> bool:
        """Send a message, unless one with the same key waits. Return whether the node takes it."""
        if not self._reaches(node):
            self.remove(node, list(self._waiting.get(node, ())))
            return False
        waiting = self._waiting.setdefault(node, {})
        is_full = self.count >= MESSAGES_MAX or self.size + len(message) > BYTES_MAX
        if key not in waiting and not is_full:
            waiting[key] = message
            self.count += 1
            self.size += len(message)
        return True

    def owners(self) -> list[str]:
        return list(self._waiting)

    def next(self, owner: str, most: int) -> tuple[Sequence[bytes], list[bytes]]:
        waiting = self._waiting.get(owner, {})
        return list(islice(waiting, most)), list(islice(waiting.values(), most))

    def mark(self, *_: object) -> None:
        """Return None: nobody acknowledges these messages."""

    def pushed(self, owner: str, keys: Sequence[bytes]) -> None:
        self.remove(owner, keys)

    def question(self) -> tuple[str, ...]:
        return ()

    async def hear(self, *_: object) -> None:
        """Do nothing: nobody is asked."""

    def remove(self, owner: str, keys: Sequence[bytes]) -> int:
        """Remove messages; return how many were there."""
        waiting = self._waiting.get(owner, {})
        before = len(waiting)
        for key in keys:
            if (message := waiting.pop(key, None)) is not None:
                self.count -= 1
                self.size -= len(message)
        removed = before - len(waiting)
        if not waiting:
            self._waiting.pop(owner, None)
        return removed
