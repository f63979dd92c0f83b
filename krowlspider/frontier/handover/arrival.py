"""Hosts that come from other frontiers, chunk by chunk.

The number of chunks that have come of a host is written in the batch that puts a chunk's content into the queue: each
counts once, however often it is sent, and after a death of either side the hand-over goes on where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krowlspider.frontier.handover.chunks import read_chunk
from krowlspider.frontier.handover.transfer import take_over
from krowlspider.frontier.hosts.host import SEALED
from krowlspider.frontier.schedule.ownership import HostBusyError
from krowlspider.frontier.store import schema

if TYPE_CHECKING:
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.part import Identify
    from krowlspider.frontier.robots.cache import RobotsCache
    from krowlspider.frontier.store.store import Store


class Arrivals:
    """The hosts that come to a frontier. ``identify`` gives the identity of an entry as the dupefilter does, and raises
    ValueError for a request that cannot be taken from outside; ``url_max`` is the length of the longest URL taken."""

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

    def take(self, said: Any) -> int:
        """Take a chunk, as parsed from JSON, if it is the next of its host; return how many have come.

        They survive the death of this process, and a power loss after the next commit: that number is to be told to the
        sender then. Nothing says that the host may be fetched: that is `Ownership.is_ours`, when the last one has
        come or the sender is known to be dead.

        :raises BadChunk: it is none; nothing has changed
        :raises HostBusyError: what this node had of the host is still on its way to another
        """
        part = read_chunk(said, self._frontier.now(), self._identify, url_max=self._url_max)
        if self._frontier.schedule.cache.get(part.name).state is SEALED:
            raise HostBusyError(f"{part.name} is on its way to another node")
        note = schema.arriving_prefix(part.name) + part.transfer
        saved = self._store.get(note)
        arrived = 0 if saved is None else int.from_bytes(saved, "big")
        if part.number != arrived:
            return arrived
        batch = self._store.batch()
        for authority, record in part.robots:
            self._robots.take_over(authority, record, batch)
        batch.put(note, (arrived + 1).to_bytes(4, "big"))
        take_over(self._frontier, part, batch)
        return arrived + 1
