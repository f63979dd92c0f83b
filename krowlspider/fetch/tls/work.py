"""The bounds of the work that TLS may cause, and the key exchange that a server asked for."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

_HANDSHAKE, _CLIENT_HELLO = 22, 1
# A record of one byte, sent before the second ClientHello: RFC 8446, appendix D.4.
_CHANGE_CIPHER_SPEC = b"\x14\x03\x03\x00\x01\x01"
_KEY_SHARE = 51
# ffdhe2048 to ffdhe8192: RFC 7919, section 2.
_FINITE_FIELD = range(0x100, 0x106)


def offers_finite_field(flight: bytes) -> bool:
    """Return whether ``flight`` is a ClientHello with a key share of a finite field.

    ``flight`` is as this side sends it. OpenSSL offers such a key only if the server asked for it
    (RFC 8446, section 4.1.4).
    """
    hello = flight.removeprefix(_CHANGE_CIPHER_SPEC)
    if len(hello) < 6 or hello[0] != _HANDSHAKE or hello[5] != _CLIENT_HELLO:
        return False
    # Skip the headers, version and random bytes; then session, suites and compression, each with
    # its length.
    at = 5 + 4 + 2 + 32
    at += 1 + hello[at]
    at += 2 + _number(hello, at)
    at += 1 + hello[at]
    end = at + 2 + _number(hello, at)
    at += 2
    while at < end:
        kind, length = _number(hello, at), _number(hello, at + 2)
        if kind == _KEY_SHARE:
            return _number(hello, at + 6) in _FINITE_FIELD
        at += 4 + length
    return False


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big")


# Bytes at which a handshake is cut off, and later as many in a row without content. Certificate
# chains of the web have 3 to 10 kB.
BARE_MOST = 32_768
# CPU seconds that a connection may take, and more for each byte of content: a hundred times an
# ordinary handshake, and the cost of records of 30 bytes.
WORK = 0.05
WORK_BYTE = 50e-9
# CPU seconds of TLS in one turn of the loop, exceeded by one slice at most: some 30 handshakes.
TURN = 0.02


class TlsWork:
    """The bytes and CPU seconds of one connection; ``step`` is the seconds since it was set to 0.

    ``bare`` is the bytes received since the last content.
    """

    def __init__(self) -> None:
        self.bare = 0
        self.step = 0.0
        self._content = 0
        self._spent = 0.0
        # Reading the CPU clock takes ten times as long, so only connections that are not light use
        # it.
        self.timer = time.perf_counter

    @property
    def is_light(self) -> bool:
        """Return whether the server has caused little work so far."""
        return self._spent < WORK / 10 + WORK_BYTE * self._content

    def charge(self, begun: float) -> None:
        """Count the seconds since ``begun``, a time of ``timer``."""
        # Capped, because a garbage collection may fall within it.
        took = min(self.timer() - begun, WORK / 2)
        self.step += took
        self._spent += took
        if self.timer is time.perf_counter and not self.is_light:
            # Wall time may have been spent waiting for the CPU, so measure anew in CPU time.
            self.timer, self._spent = time.thread_time, 0.0

    def add_content(self, size: int) -> None:
        """Count ``size`` bytes of content; 0 for the end of the handshake."""
        self.bare = 0
        self._content += size

    def excess(self) -> str | None:
        """Return why the server must be cut off, or None."""
        if self.bare >= BARE_MOST:
            return f"{self.bare} bytes of TLS without content"
        if self._spent > WORK + WORK_BYTE * self._content:
            spent = f"{1000 * self._spent:.0f} ms of CPU"
            return f"TLS took {spent} for {self._content} bytes of content"
        return None


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
