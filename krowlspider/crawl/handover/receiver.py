"""Receives the hosts that other nodes hand over: each chunk is acknowledged when it is durable."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from krowlspider.cluster.transport.redis_connection import RedisConnection, RedisTrouble, checked
from krowlspider.crawl.handover.loop_share import SHARE, LoopShare
from krowlspider.frontier.handover.chunks import BadChunk
from krowlspider.frontier.schedule.ownership import HostBusyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redis.asyncio import Redis

    from krowlspider.frontier.handover.arrival import Arrivals

# Seconds that an acknowledgement is kept for a sender that is away. After that, it sends again.
_KEPT = 3600
# The acknowledgement of a host that this node cannot take.
REFUSED = b"-"
# Characters of a host in a key of Redis.
_HOST_MAX = 2048
_TRANSFER = re.compile("[0-9a-f]{16}")


def arrived_key(spider: str, host: str, transfer: str) -> str:
    """Return the key where the receiver writes how many chunks of a host have arrived.

    ``transfer`` is 16 hex digits, the same for hosts with the same record.
    """
    return f"{spider}:arrived:{host}:{transfer}"


@dataclass(slots=True)
class ReceiverStats:
    """Since this start: chunks taken, hosts of which the last one was taken, chunks not taken."""

    chunks: int = 0
    hosts: int = 0
    busy: int = 0
    refused: int = 0
    # Failed calls by kind.
    failed: Counter[str] = field(default_factory=Counter)


class HandoverReceiver:
    """Takes chunks into ``arrivals`` and acknowledges them in this node's own Redis, ``client``.

    ``may_take`` returns whether this node owns a host, and keeps other nodes from fetching it.
    Chunks of other hosts are sent again, until both nodes know the ring.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        client: Redis,
        spider: str,
        make_durable: Callable[[], Awaitable[None]],
        *,
        may_take: Callable[[str], bool] = lambda _: True,
        share: Callable[[], float] = lambda: SHARE,
        on_arrival: Callable[[], None] = lambda: None,
    ) -> None:
        self._arrivals = arrivals
        self._connection = RedisConnection(client)
        self._spider = spider
        self._make_durable = make_durable
        self._may_take = may_take
        self._share = LoopShare(share)
        self._on_arrival = on_arrival
        self.stats = ReceiverStats()

    async def take(self, chunks: list[Any]) -> list[str | None]:
        """Take chunks; return for each the reason why no node can take it, or None."""
        taken = self.stats.chunks
        acknowledgements: dict[str, bytes | int] = {}
        reasons: list[str | None] = []
        for chunk in chunks:
            async with self._share:
                reasons.append(self._take(chunk, acknowledgements))
        if acknowledgements:
            await self._make_durable()
            await self._acknowledge(acknowledgements)
        if self.stats.chunks > taken:
            self._on_arrival()
        return reasons

    def _take(self, chunk: Any, acknowledgements: dict[str, bytes | int]) -> str | None:
        match chunk:
            case {"host": str(host)} if not self._may_take(host):
                self.stats.busy += 1
                return None
        try:
            arrived: bytes | int = self._arrivals.take(chunk)
            reason = None
        except BadChunk as error:
            self.stats.refused += 1
            arrived, reason = REFUSED, str(error)[:200]
        except HostBusyError:
            # The sender sends it again.
            self.stats.busy += 1
            return None
        if (key := self._key(chunk)) is not None:
            acknowledgements[key] = arrived
        if reason is None and arrived == chunk["number"] + 1:
            self.stats.chunks += 1
            self.stats.hosts += chunk["last"]
        return reason

    def _key(self, chunk: Any) -> str | None:
        """Return the key of a chunk's acknowledgement, None if it cannot have one."""
        match chunk:
            case {"host": str(host), "transfer": str(transfer)}:
                if len(host) <= _HOST_MAX and _TRANSFER.fullmatch(transfer):
                    return arrived_key(self._spider, host, transfer)
        return None

    async def _acknowledge(self, acknowledgements: dict[str, bytes | int]) -> None:
        """Write the acknowledgements. If that fails, the chunks come again, and then these."""
        commands = [("SET", key, value, "EX", _KEPT) for key, value in acknowledgements.items()]
        try:
            checked(await self._connection.call_all(*commands))
        except RedisTrouble as error:
            self.stats.failed[error.kind] += 1

    async def close(self) -> None:
        await self._connection.close()
