"""The messages about robots.txt that wait to be sent, in memory.

One that is lost with the process is asked for again.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.cluster.transport.robots_message import encode_answer, encode_ask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from krowlspider.politeness.robots import RobotsRecord

# Most messages that wait, and their bytes. Further ones are left out.
MESSAGES_MAX = 10_000
BYTES_MAX = 16 << 20
# Messages about robots.txt in the list of another node from which on nothing is sent to it.
ROBOTS_INBOX_MAX = 200


class RobotsPost:
    """Node ``own``'s messages to other nodes about robots.txt; a `forwarder.Outbox`.

    ``owner`` returns the other node that owns a host, None for a host of this node. ``reaches``
    returns whether a node takes messages, ``wall`` epoch seconds.
    """

    def __init__(
        self,
        own: str,
        owner: Callable[[str], str | None],
        reaches: Callable[[str], bool],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.owner = owner
        self._own = own
        self._reaches = reaches
        self._wall = wall
        # By node, then by key.
        self._waiting: dict[str, dict[bytes, bytes]] = {}
        self.count = self.size = 0

    def ask(self, node: str, number: int, url: str) -> bool:
        """Send an ask, unless the same one waits already. Return whether the node takes it."""
        return self._put(node, b"ask %d" % number, encode_ask(self._own, number, url))

    def answer(
        self,
        node: str,
        number: int,
        *,
        record: RobotsRecord | None = None,
        location: str | None = None,
    ) -> None:
        """Send an answer, as in `RobotsAnswer`."""
        kind = b"answer" if record or location else b"wait"
        message = encode_answer(number, record, location, self._wall())
        self._put(node, b"%b %d" % (kind, number), message)

    def _put(self, node: str, key: bytes, message: bytes) -> bool:
        if not self._reaches(node):
            self._forget(node)
            return False
        waiting = self._waiting.setdefault(node, {})
        is_full = self.count >= MESSAGES_MAX or self.size + len(message) > BYTES_MAX
        if key not in waiting and not is_full:
            waiting[key] = message
            self.count += 1
            self.size += len(message)
        return True

    def _forget(self, node: str) -> None:
        self.remove(node, list(self._waiting.get(node, ())))

    def owners(self) -> list[str]:
        return list(self._waiting)

    def head(self, owner: str, most: int) -> list[tuple[bytes, bytes]]:
        return list(islice(self._waiting.get(owner, {}).items(), most))

    def remove(self, owner: str, keys: Sequence[bytes]) -> None:
        waiting = self._waiting.get(owner, {})
        for key in keys:
            if (message := waiting.pop(key, None)) is not None:
                self.count -= 1
                self.size -= len(message)
        if not waiting:
            self._waiting.pop(owner, None)
