"""The messages about robots.txt that wait to be sent.

One that is lost with the process is asked for again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from krowlspider.cluster.transport.memory_outbox import MemoryOutbox
from krowlspider.cluster.transport.robots_message import encode_answer, encode_ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.politeness.robots import RobotsRecord

# Messages about robots.txt in the list of another node from which on nothing is sent to it.
ROBOTS_INBOX_MAX = 200


class RobotsPost(MemoryOutbox):
    """Node ``own``'s messages to other nodes about robots.txt.

    ``owner`` returns the other node that owns a host, None for a host of this node. ``wall``
    returns epoch seconds.
    """

    def __init__(
        self,
        own: str,
        owner: Callable[[str], str | None],
        reaches: Callable[[str], bool],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(reaches)
        self.owner = owner
        self._own = own
        self._wall = wall

    def ask(self, node: str, number: int, url: str) -> bool:
        """Send an ask, unless the same one waits already. Return whether the node takes it."""
        return self.put(node, b"ask %d" % number, encode_ask(self._own, number, url))

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
        self.put(node, b"%b %d" % (kind, number), message)
