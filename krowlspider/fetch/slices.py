"""Shares out the time that TLS may take of a turn of the event loop."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from krowlspider.fetch.tls import Channel

# CPU seconds of TLS in one turn of the loop, exceeded by one slice at most; some 30 handshakes.
TURN = 0.02


class Slices:
    """Has channels work on what they received, a slice at a time.

    What exceeds a turn waits for the next one. Channels that wait do not read. Those that took
    little so far go before those that took much.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Channel] = deque()
        self._left = TURN
        self._turning = False

    def work(self, channel: Channel) -> None:
        """Work on what a channel has received, now or in turns to come."""
        while channel.pending:
            if self._waiting or self._left <= 0.0:
                channel.pause()
                self._queue(channel)
                return
            self._step(channel)

    def go_on(self, channel: Channel) -> None:
        """Work on what is left of what a channel has received, then have it receive again."""
        self.work(channel)
        if not channel.pending:
            channel.resume()

    def _step(self, channel: Channel) -> None:
        self._left -= channel.step()
        # Not in each turn: a loop with something to call does not sleep.
        if self._left < TURN / 2 and not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)

    def _queue(self, channel: Channel) -> None:
        if channel.is_light:
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
                    channel.resume()
        finally:
            # Whatever becomes of one channel, the others go on.
            if self._waiting and not self._turning:
                self._turning = True
                self._loop.call_soon(self._turn)
