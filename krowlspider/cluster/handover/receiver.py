"""Takes in the hosts that other nodes hand over: chunk by chunk, each acknowledged when it is on the disk to stay."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from krowlspider.cluster.handover.loop_share import SHARE, LoopShare
from krowlspider.cluster.transport.redis_connection import RedisConnection, RedisTrouble, checked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redis.asyncio import Redis

    from krowlspider.cluster.ring.claims import Claims, View
    from krowlspider.cluster.ring.ring import Ring

# Seconds between two looks whether a ring is known; looks at most.
_LOOK = 0.2
_LOOKS = 10
# Seconds that an acknowledgement is kept for a sender that is away; should it come later, it sends a chunk again.
_KEPT = 3600
# In place of the number of chunks that have come: this node cannot take the host.
REFUSED = b"-"
# Characters of a host in a key of Redis: of the longest URL that is taken.
_HOST_MAX = 2048
_TRANSFER = re.compile("[0-9a-f]{16}")


def arrived_key(spider: str, host: str, transfer: str) -> str:
    """Where the receiver says how many chunks of a host have come; ``transfer`` is 16 hex digits, which hosts of the same
    record share."""
    return f"{spider}:arrived:{host}:{transfer}"


class Arrivals(Protocol):
    """The hosts that come to a frontier."""

    def take(self, said: Any) -> int:
        """Take a chunk if it is the next of its host; return how many have come."""


class OwnedHosts:
    """``arrivals`` of hosts that are ours by ``view``, the cluster as it is known here, and that our claims lock: of others
    another node might fetch what has not been handed on. ``domain_of`` a host raises ValueError for what is none, ``busy``
    is what `take` raises for another's."""

    def __init__(
        self,
        arrivals: Arrivals,
        view: Callable[[], View],
        domain_of: Callable[[str], str],
        *,
        busy: type[Exception],
    ):
        self._arrivals = arrivals
        self._view = view
        self._domain_of = domain_of
        self._busy = busy
        # The ring, and our claims, for whose successors chunks have been kept waiting in vain.
        self._last: tuple[Ring, Claims] | None = None

    async def wait(self, chunks: list[Any]) -> None:
        """Return when the chunks can be taken, or will not be.

        A ring by which they come may not be known here yet, or not be claimed. What is not ours 2 seconds later came by an
        older one. So does what comes after it, until the ring is another: a list full of them would be read for long.
        """
        for _ in range(_LOOKS):
            view = self._view()
            known = view.ring, view.held
            if view.leaving or known == self._last or all(map(self._may_take, chunks)):
                return
            await asyncio.sleep(_LOOK)
        self._last = known

    def take(self, said: Any) -> int:
        """As that of the arrivals."""
        if not self._may_take(said):
            raise self._busy(f"{said['host']!r} is another node's by now")
        return self._arrivals.take(said)

    def _may_take(self, chunk: Any) -> bool:
        host = chunk.get("host") if isinstance(chunk, dict) else None
        try:
            return not isinstance(host, str) or self._view().may_take(self._domain_of(host))
        except ValueError:
            # What is no chunk is refused as such.
            return True


@dataclass(slots=True)
class ReceiverStats:
    """Of this start: chunks taken and hosts of which the last one came, repeats included; chunks of hosts that were on their
    way out, and refused ones; troubles with the acknowledgements by kind."""

    chunks: int = 0
    hosts: int = 0
    busy: int = 0
    refused: int = 0
    failed: Counter[str] = field(default_factory=Counter)


class HandoverReceiver:
    """Gives chunks to ``arrivals``, whose ``bad`` says that one cannot be taken, and whose ``busy`` that it cannot be taken
    now. ``durable`` returns when all that they have written is on the disk to stay. ``came`` is told the host of
    each chunk that is. ``client`` is of this node's own Redis, where the senders read what has come.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        client: Redis,
        spider: str,
        durable: Callable[[], Awaitable[None]],
        *,
        bad: type[Exception],
        busy: type[Exception],
        share: Callable[[], float] = lambda: SHARE,
        came: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._arrivals = arrivals
        self._connection = RedisConnection(client)
        self._spider = spider
        self._durable = durable
        self._bad = bad
        self._busy = busy
        self._share = LoopShare(share, clock)
        self._came = came
        self.stats = ReceiverStats()

    async def take(self, chunks: list[Any]) -> list[str | None]:
        """Take chunks, as parsed from JSON; for each the reason why no node may take it, None for any other."""
        # By key.
        said: dict[str, bytes | int] = {}
        came: list[str] = []
        reasons: list[str | None] = []
        for chunk in chunks:
            async with self._share:
                reasons.append(self._take(chunk, said, came))
        if said:
            await self._durable()
            await self._acknowledge(said)
        for host in came:
            self._came(host)
        return reasons

    def _take(self, chunk: Any, said: dict[str, bytes | int], came: list[str]) -> str | None:
        try:
            arrived = self._arrivals.take(chunk)
        except self._bad as error:
            self.stats.refused += 1
            if (key := self._key(chunk)) is not None:
                said[key] = REFUSED
            return str(error)[:200]
        except self._busy:
            # The sender sends it again.
            self.stats.busy += 1
            return None
        if (key := self._key(chunk)) is not None:
            said[key] = arrived
        if arrived == chunk["number"] + 1:
            came.append(chunk["host"])
            self.stats.chunks += 1
            self.stats.hosts += chunk["last"]
        return None

    def _key(self, chunk: Any) -> str | None:
        """Where the sender looks for an answer, if it is one that may have one."""
        if not isinstance(chunk, dict):
            return None
        host, transfer = chunk.get("host"), chunk.get("transfer")
        if not (isinstance(host, str) and isinstance(transfer, str)):
            return None
        if len(host) > _HOST_MAX or not _TRANSFER.fullmatch(transfer):
            return None
        return arrived_key(self._spider, host, transfer)

    async def _acknowledge(self, said: dict[str, bytes | int]) -> None:
        """A sender that is not told sends a chunk again, and is told then."""
        commands = [("SET", key, value, "EX", _KEPT) for key, value in said.items()]
        try:
            checked(await self._connection.talk(*commands))
        except RedisTrouble as error:
            self.stats.failed[error.kind] += 1

    async def close(self) -> None:
        await self._connection.close()
