"""The members of a cluster, its signal, its errors, and the tasks of a node.

The signal of a cluster: one of the keys that all nodes share. It is the plain text RUNNING, PAUSED
or STOP; without the key it is RUNNING.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from krowlspider.cluster.ring.ring import Claims, Member, MemberRecord

logger = logging.getLogger(__name__)

# Seconds after which a task that still runs is cancelled again.
_AGAIN = 5.0


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and return when all of them are done, whatever their results.

    None of them is awaited: the caller's own cancellation would look like theirs.
    """
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        # asyncio.wait_for of Python 3.11, which libraries use, may swallow a cancellation.
        _, running = await asyncio.wait(running, timeout=_AGAIN)


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Tasks:
    """Tasks of one owner. An exception of one goes to ``on_failure``; the others go on."""

    def __init__(self, on_failure: Callable[[Exception], None]):
        self._on_failure = on_failure
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        # No TaskGroup: it would wait for ever for a task that swallows its cancellation.
        self._tasks.append(asyncio.create_task(self._watch(work)))

    async def end(self) -> None:
        tasks, self._tasks = self._tasks, []
        await end(tasks)

    async def _watch(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
                (error,) = error.exceptions
            if not isinstance(error, KrowlError):
                logger.critical("This node of the cluster cannot go on", exc_info=error)
            self._on_failure(error)


# Bytes of the cluster's identity seed.
SEED_SIZE = 8


class ClusterError(KrowlError):
    """This node cannot join the cluster, or not with these settings."""


class UnansweredError(Exception):
    """The register or a Redis did not answer in time. The call may have had its effect."""


class Membership(Protocol):
    """A node's place in the register of a cluster whose members join and leave.

    ``members`` has every live member by id, this node included. ``epoch`` grows with each reading
    of them; it may fall when the register has lost its data. The next `publish` stores ``own``.
    """

    own: Member

    @property
    def members(self) -> Mapping[str, MemberRecord]: ...

    @property
    def epoch(self) -> int: ...

    @property
    def good_until(self) -> float:
        """The end of the lease by the membership's clock.

        Before it, no other node takes over the domains of this node.
        """

    async def publish(self, claims: Claims, *, leaving: bool = False) -> None:
        """Store this node's claims for all to read, then read the members again.

        Of two nodes that publish at the same time, at least one returns with the other's claims in
        ``members``. An outage is waited for.
        """


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

    async def put(self, name: str, value: str | bytes) -> None: ...

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
