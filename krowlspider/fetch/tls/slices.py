"""Limit the CPU time that TLS takes in one turn of the event loop."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from krowlspider.fetch.tls.work import TlsWork

# CPU seconds of TLS in one turn of the loop, exceeded by one slice at most: some 30 handshakes.
TURN = 0.02


class Sliced(Protocol):
    """A `Channel` with received bytes, to be processed in slices."""

    work: TlsWork

    @property
    def pending(self) -> bool: ...
    def step(self) -> float: ...
    def set_waiting(self, waiting: bool) -> None: ...


class Slices:
    """Lets channels process their received bytes, one slice at a time.

    Work beyond ``TURN`` waits for the next turn of the event loop. Channels that wait do not read
    from their sockets. Channels that took little time so far go before those that took much.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Sliced] = deque()
        self._left = TURN
        self._turning = False

    def process(self, channel: Sliced) -> None:
        """Process the bytes that a channel has received, now or in later turns of the loop."""
        while channel.pending:
            if self._waiting or self._left <= 0.0:
                channel.set_waiting(True)
                self._queue(channel)
                return
            self._step(channel)

    def go_on(self, channel: Sliced) -> None:
        """Process the bytes left over from a channel's last read, then let it receive again."""
        self.process(channel)
        if not channel.pending:
            channel.set_waiting(False)

    def _step(self, channel: Sliced) -> None:
        self._left -= channel.step()
        # Not scheduled in each turn: a loop with a callback to run does not sleep.
        if self._left < TURN / 2:
            self._schedule()

    def _schedule(self) -> None:
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)

    def _queue(self, channel: Sliced) -> None:
        if channel.work.is_light:
            self._waiting.appendleft(channel)
        else:
            self._waiting.append(channel)

    def _turn(self) -> None:
        self._left, self._turning = TURN, False
        try:
            while self._waiting and self._left > 0.0:
                channel = self._waiting.popleft()
                if channel.pending:
                    self._step(channel)
                if channel.pending:
                    self._queue(channel)
                else:
                    channel.set_waiting(False)
        finally:
            # An error in one channel must not stop the others.
            if self._waiting:
                self._schedule()
