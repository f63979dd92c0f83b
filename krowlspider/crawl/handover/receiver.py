"""Receives the hosts that other nodes hand over: each chunk is acknowledged when it is durable."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from krowlspider.cluster.transport.redis_connection import RedisConnection, RedisTrouble, checked
from krowlspider.crawl.handover.loop_share import SHARE, LoopShare
from krowlspider.frontier.handover.chunks import BadChunk
from krowlspider.frontier.hosts.scheduling import HostBusyError
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redis.asyncio import Redis

    from krowlspider.cluster.ring.claims import View
    from krowlspider.cluster.ring.record import Claims
    from krowlspider.cluster.ring.ring import Ring
    from krowlspider.frontier.handover.arrival import Arrivals

# Seconds between two looks whether a ring is known, and the most looks.
_LOOK = 0.2
_LOOKS = 10
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


class OwnedHosts:
    """The ``arrivals`` of hosts that this node owns and locks by its claims, by ``view``.

    Another node may fetch other hosts before they are handed on.
    """

    def __init__(self, arrivals: Arrivals, view: Callable[[], View]):
        self._arrivals = arrivals
        self._view = view
        # The ring and our claims for which chunks were waited for in vain.
        self._last: tuple[Ring, Claims] | None = None

    async def wait(self, chunks: list[Any]) -> None:
        """Return when the chunks can be taken, at most 2 seconds later.

        The ring by which they were sent may not be known here yet, or not be claimed. Chunks that
        still cannot be taken came by an older ring. Until the ring changes, later chunks are not
        waited for: a list full of them would take long.
        """
        for _ in range(_LOOKS):
            view = self._view()
            known = view.ring, view.in_force
            if view.leaving or known == self._last or all(map(self._may_take, chunks)):
                return
            await asyncio.sleep(_LOOK)
        self._last = known

    def take(self, chunk: Any) -> int:
        """Take a chunk; return how many have arrived of its host.

        :raises BadChunk: it is no chunk
        :raises HostBusyError: the host cannot come now, or is not ours
        """
        if not self._may_take(chunk):
            raise HostBusyError(f"{chunk['host']!r} is another node's by now")
        return self._arrivals.take(chunk)

    def _may_take(self, chunk: Any) -> bool:
        host = chunk.get("host") if isinstance(chunk, dict) else None
        try:
            return not isinstance(host, str) or self._view().may_take(domain_of(host))
        except ValueError:
            # The arrivals refuse it as no chunk.
            return True


@dataclass(slots=True)
class ReceiverStats:
    """Since this start: chunks taken, and hosts of which the last chunk was taken.

    ``busy`` and ``refused`` chunks were not taken; ``failed`` are failed calls by kind.
    """

    chunks: int = 0
    hosts: int = 0
    busy: int = 0
    refused: int = 0
    failed: Counter[str] = field(default_factory=Counter)


class HandoverReceiver:
    """Takes chunks into ``arrivals`` and acknowledges them in this node's own Redis, ``client``.

    ``make_durable`` returns when what was taken is durable. ``on_arrival`` is called after that.
    """

    def __init__(
        self,
        arrivals: OwnedHosts,
        client: Redis,
        spider: str,
        make_durable: Callable[[], Awaitable[None]],
        *,
        share: Callable[[], float] = lambda: SHARE,
        on_arrival: Callable[[], None] = lambda: None,
    ) -> None:
        self._arrivals = arrivals
        self._connection = RedisConnection(client)
        self._spider = spider
        self._make_durable = make_durable
        self._share = LoopShare(share, time.monotonic)
        self._on_arrival = on_arrival
        self.stats = ReceiverStats()

    async def take(self, chunks: list[Any]) -> list[str | None]:
        """Take chunks, parsed from JSON.

        Return for each the reason why no node can take it, or None.
        """
        await self._arrivals.wait(chunks)
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
