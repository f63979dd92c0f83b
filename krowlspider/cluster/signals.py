"""The signal of a cluster: one of the keys that all nodes share.

It is the plain text RUNNING, PAUSED or STOP; without the key it is RUNNING.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from krowlspider.cluster.membership import ClusterError, UnansweredError

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

# Seconds between two readings. With the time limit of a call, it is less than the 5 s in which a
# signal must be obeyed.
POLL = 2.0
SIGNAL = "signal"


class Signal(StrEnum):
    """What all nodes are to do: fetch, let requests in flight end, or end as by SIGTERM."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOP = "STOP"


class StopSignalError(ClusterError):
    """This node does not start, because the signal of the cluster is STOP."""


class SharedKeys(Protocol):
    """The keys that all nodes of a cluster share, by name.

    Each call raises UnansweredError if the server does not answer in time.
    """

    async def get(self, name: str) -> bytes | None: ...

    async def put(self, name: str, value: str) -> None: ...

    async def delete(self, name: str) -> None: ...

    async def add(self, name: str, number: int, limit: int) -> int:
        """Add to a number in one step, within 0 and ``limit``; return what was added."""


class Signals:
    """The signal of the cluster as last read. While no server answers, the last one stands."""

    def __init__(self, keys: SharedKeys, poll: float = POLL) -> None:
        self.signal = Signal.RUNNING
        self._keys = keys
        self._poll = poll
        self._ignored: bytes | None = None

    async def send(self, signal: Signal) -> None:
        """:raises UnansweredError: it may be sent or not"""
        await self._keys.put(SIGNAL, str(signal))
        self.signal = signal

    async def read(self) -> Signal:
        """Read the signal. A text that is no signal changes nothing, and is logged once.

        :raises UnansweredError: the server does not answer
        """
        text = await self._keys.get(SIGNAL)
        name = "RUNNING" if text is None else text.decode(errors="replace").strip()
        if name in set(Signal):
            self.signal, self._ignored = Signal(name), None
        elif text != self._ignored:
            self._ignored = text
            logger.warning("Cluster signal %.40r ignored: use one of %s", name, ", ".join(Signal))
        return self.signal

    async def refuse_stop(self, cluster: str) -> None:
        """Read the signal before the start; without an answer, joining tells.

        :raises StopSignalError: it is STOP
        """
        with suppress(UnansweredError):
            if await self.read() is Signal.STOP:
                raise StopSignalError(
                    f"the cluster {cluster} is stopped by its signal STOP: send RUNNING with"
                    " `scrapy ring --signal RUNNING`, then start this node again"
                )

    async def run(self, on_change: Callable[[], None]) -> None:
        """Read the signal again and again until cancelled; call ``on_change`` when it changes."""
        last = self.signal
        while True:
            with suppress(UnansweredError):
                await self.read()
            if self.signal is not last:
                last = self.signal
                logger.info("Cluster signal is %s", last)
                on_change()
            await asyncio.sleep(self._poll)
