"""TLS between a TCP transport and a connection, and the turns of channels on the event loop.

The TLS of uvloop keeps large buffers for each connection, idle ones too. This one takes much less
memory, and no more CPU.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from krowlspider.fetch.errors import TLSFailed
from krowlspider.fetch.tls.work import TlsWork, offers_finite_field

if TYPE_CHECKING:
    from krowlspider.fetch.connection import Connection
    from krowlspider.fetch.loop_clock import LoopClock

logger = logging.getLogger(__name__)

# CPU seconds of TLS in one turn of the loop, exceeded by one slice at most: some 30 handshakes.
TURN = 0.02
# Bytes decrypted at a time, about one record: OpenSSL keeps a buffer as large as its input.
_SLICE = 16_384
# The largest content of a record: RFC 8446, section 5.1.
_RECORD = 16_384
_NOTHING = memoryview(b"")


class Channel(asyncio.Protocol):
    """The transport of a connection: decrypts what TCP receives, and encrypts what is sent.

    The methods from `write` to `get_extra_info` are the transport's part. Those from `pending` to
    `set_waiting` serve `Slices`. Those from `connection_made` to `connection_lost` are called by
    TCP.

    ``connected`` is the time of ``clock`` at which TCP was connected. ``secured`` is a future that
    ends with the handshake. It fails with OSError (`ssl.SSLError` included), or with TLSFailed for
    a server that is cut off. Data that the server sends before the first request waits until those
    who await ``secured`` have run.

    An end without close_notify cuts the connection off: see `Connection.cut_off`.

    A server that causes too much work (see `TlsWork`) is cut off with TLSFailed, and logged. So is
    one that asks for a key exchange over a finite field, which takes up to 0.1 s in a single call.

    :raises ValueError: OpenSSL rejects the server name
    """

    def __init__(
        self,
        clock: LoopClock,
        context: ssl.SSLContext,
        server_name: str,
        connection: Connection,
        slices: Slices,
    ) -> None:
        self._clock = clock
        self._connection = connection
        self._slices = slices
        self.work = TlsWork()
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_hostname=server_name)
        self._transport: asyncio.Transport | None = None
        self._unsent = b""
        # Received bytes that OpenSSL was not given yet.
        self._received = _NOTHING
        self._error: Exception | None = None
        # Whether data is passed to the connection.
        self._is_open = False
        # Whether the connection, and whether the slices, have paused reading.
        self._is_held_back = False
        self._is_waiting = False
        self.connected = 0.0
        self.secured: asyncio.Future[None] = clock.loop.create_future()

    def write(self, data: bytes) -> None:
        self._unsent += data
        self._send()

    def abort(self) -> None:
        self.secured.cancel()
        self._received = _NOTHING
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def pause_reading(self) -> None:
        self._is_held_back = True
        self._set_reading()

    def resume_reading(self) -> None:
        self._is_held_back = False
        if self._received:
            # Not immediately: the connection may be handling data just now.
            self._clock.loop.call_soon(self._slices.go_on, self)
        else:
            self._set_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the SSL object for ``ssl_object``; for other names what TCP has."""
        if name == "ssl_object":
            return self._object
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    @property
    def pending(self) -> bool:
        """Return whether there is work: none between the handshake and the first request."""
        may_go_on = self._is_open or not self.secured.done()
        return bool(self._received) and may_go_on and not self._is_held_back

    def step(self) -> float:
        """Process the next slice; return the seconds it took."""
        piece = self._received[:_SLICE]
        # Not an empty view of it, which would keep the whole buffer alive.
        self._received = self._received[_SLICE:] or _NOTHING
        self._in.write(piece)
        self.work.bare += len(piece)
        self.work.step = 0.0
        if self._is_open:
            self._read()
            self._send()
        else:
            self._shake_hands()
        return self.work.step

    def set_waiting(self, waiting: bool) -> None:
        """Receive no more, or receive again unless the connection has paused reading."""
        self._is_waiting = waiting
        self._set_reading()

    def _set_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._is_held_back or self._is_waiting:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connected = self._clock.time()
        self._transport = cast("asyncio.Transport", transport)
        self._shake_hands()

    def data_received(self, data: bytes) -> None:
        self._received = memoryview(data)
        if self.pending:
            self._slices.process(self)
        else:
            self.set_waiting(True)

    def eof_received(self) -> None:
        # The server can answer nothing more, whatever this side still has to send.
        if self._is_open:
            self._connection.closed = True
            self._connection.cut_off()
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._received = _NOTHING
        if self.secured.done():
            self._connection.connection_lost(self._error or exc)
        else:
            self._refuse(exc or ConnectionResetError("closed during the handshake"))

    def _shake_hands(self) -> None:
        begun = self.work.timer()
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            self.work.charge(begun)
            hello = self._out.read()
            cause = self.work.excess()
            if self.work.bare and offers_finite_field(hello):
                cause = "it asks for a key exchange over a finite field"
            if cause is not None:
                self._refuse(_cut_off(self._connection, cause))
            elif hello and self._transport is not None:
                self._transport.write(hello)
        except ssl.SSLError as error:
            self._send()
            self._refuse(error)
        else:
            self.work.charge(begun)
            self.work.add_content(0)
            self._connection.connection_made(cast("asyncio.BaseTransport", self))
            self.secured.set_result(None)
            # The last bytes of the handshake go with the request.
            self._clock.loop.call_soon(self._open)

    def _refuse(self, error: Exception) -> None:
        # Without its traceback, which holds this channel.
        self.secured.set_exception(error.with_traceback(None))
        # Mark it as retrieved: the caller that awaited it may have been cancelled.
        self.secured.exception()

    def _open(self) -> None:
        self._is_open = True
        self.set_waiting(False)
        if self._in.pending:
            self._read()
        self._send()
        self._slices.process(self)

    def _read(self) -> None:
        """Decrypt the data available and pass it to the connection."""
        parts: list[bytes] = []
        is_over = False
        error: ssl.SSLError | None = None
        begun = self.work.timer()
        try:
            while part := self._object.read(_RECORD):
                parts.append(part)
            # An empty read is the close_notify of the server.
            is_over = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as e:
            error = e
        self.work.charge(begun)
        if parts:
            content = b"".join(parts)
            self.work.add_content(len(content))
            self._connection.data_received(content)
        if is_over:
            self._connection.eof_received()
            self.abort()
        elif error is not None:
            self._fail(error)
        elif cause := self.work.excess():
            self._connection.fault = _cut_off(self._connection, cause)
            self._fail(self._connection.fault)

    def _send(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._object.write(self._unsent) :]
        except ssl.SSLWantReadError:
            # The server asked for another handshake: send after its next data.
            pass
        except ssl.SSLError as error:
            self._fail(error)
        if self._out.pending and self._transport is not None:
            self._transport.write(self._out.read())

    def _fail(self, error: Exception) -> None:
        # The exchange fails once TCP has ended, never while it is being begun. No new one begins.
        self._error = self._error or error.with_traceback(None)
        self._connection.closed = True
        self.abort()


def _cut_off(connection: Connection, cause: str) -> TLSFailed:
    host, address = connection.origin.host, connection.peer.address
    logger.warning("Closing the connection to %s at %s: %s", host, address, cause)
    return TLSFailed(cause)


class Slices:
    """Lets channels process their received bytes, one slice at a time.

    Work beyond ``TURN`` waits for the next turn of the event loop. Channels that wait do not read
    from their sockets. Channels that took little time so far go before those that took much.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Channel] = deque()
        self._left = TURN
        self._turning = False

    def process(self, channel: Channel) -> None:
        """Process the bytes that a channel has received, now or in later turns of the loop."""
        while channel.pending:
            if self._waiting or self._left <= 0.0:
                channel.set_waiting(True)
                self._queue(channel)
                return
            self._step(channel)

    def go_on(self, channel: Channel) -> None:
        """Process the bytes left over from a channel's last read, then let it receive again."""
        self.process(channel)
        if not channel.pending:
            channel.set_waiting(False)

    def _step(self, channel: Channel) -> None:
        self._left -= channel.step()
        # Not scheduled in each turn: a loop with a callback to run does not sleep.
        if self._left < TURN / 2:
            self._schedule()

    def _schedule(self) -> None:
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)

    def _queue(self, channel: Channel) -> None:
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
