"""Take in hosts from other frontiers, chunk by chunk.

The number of chunks that have arrived of a host is written in the batch that queues a chunk. So
each chunk counts once, however often it is sent, and the hand-over survives a death of either side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import SEALED
from krowlspider.frontier.moves.chunks import read_chunk
from krowlspider.frontier.moves.transfer import take_over
from krowlspider.frontier.schedule.ownership import HostBusyError
from krowlspider.frontier.store import schema

if TYPE_CHECKING:
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.moves.chunks import Chunk
    from krowlspider.frontier.part import Identify
    from krowlspider.frontier.robots.cache import RobotsCache
    from krowlspider.frontier.store.store import Store


class Arrivals:
    """The hosts that come to a frontier; ``url_max`` is the length of the longest URL taken."""

    def __init__(
        self,
        frontier: Frontier,
        store: Store,
        robots: RobotsCache,
        identify: Identify,
        *,
        url_max: int,
    ):
        self._frontier = frontier
        self._store = store
        self._robots = robots
        self._identify = identify
        self._url_max = url_max

    def take(self, chunk: Chunk) -> int:
        """Take a chunk if it is the next of its host.

        Return how many chunks have arrived. They survive a power loss after the next commit: tell
        the sender only then. `Ownership.is_ours` decides whether the host may be fetched.

        :raises BadChunk: the chunk cannot be taken; nothing has changed
        :raises HostBusyError: this node is handing the host over itself
        """
        part = read_chunk(chunk, self._frontier.now(), self._identify, url_max=self._url_max)
        if self._frontier.schedule.cache.get(part.name).state is SEALED:
            raise HostBusyError(f"{part.name} is on its way to another node")
        key = schema.arriving_prefix(part.name) + part.transfer
        arrived = int.from_bytes(self._store.get(key) or b"", "big")
        if part.number != arrived:
            return arrived
        batch = self._store.batch()
        for authority, record in part.robots:
            self._robots.take_over(authority, record, batch)
        batch.put(key, (arrived + 1).to_bytes(4, "big"))
        take_over(self._frontier, part, batch)
        return arrived + 1
