"""TLS between a TCP transport and a connection, and bounds of its work.

The TLS of uvloop keeps large buffers for each connection, idle ones too. `Channel` takes much less
memory, and no more CPU. `Slices` gives the channels their turns on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from krowlspider.fetch.errors import LoopClock, TLSFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krowlspider.fetch.connection import Connection

# TLS 1.2: all AES and ChaCha20 suites with a certificate, forward secrecy first, any key size, as
# no certificate is verified. No DHE: the server's modulus may cost a second of CPU.
_CIPHERS = (
    "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:RSA+AESGCM:RSA+AES"
    ":!aNULL:!eNULL:!aDSS:!PSK:!SRP:!AESCCM:@SECLEVEL=0"
)
# SSL_OP_LEGACY_SERVER_CONNECT accepts servers from before RFC 5746. Python names it from 3.12.
_LEGACY_SERVERS = 0x4


def crawler_tls(protocols: Sequence[str] = ("http/1.1",)) -> ssl.SSLContext:
    """Return a TLS context that verifies no certificate, as pages behind bad ones count too.

    It offers ``protocols`` by ALPN; without any it has no ALPN.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= _LEGACY_SERVERS
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def pinned_tls() -> ssl.SSLContext:
    """Return a TLS context for protocols that keep the certificate of each server: without ALPN,
    and without renegotiation, in which a server could show another certificate."""
    context = crawler_tls(())
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def server_name(host: str) -> str:
    """Return the name for SNI; OpenSSL sends none for an address.

    :raises TLSFailed: SNI cannot carry the name
    """
    # Checked before there is a socket: asyncio would notice only after connecting, and leave it
    # open.
    name = host.rstrip(".")  # RFC 6066, section 3: without the root dot
    try:
        name.encode("idna")
    except UnicodeError as e:
        raise TLSFailed(f"{host}: not a name for TLS: {e}") from e
    return name


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

    @property
    def is_long(self) -> bool:
        """Return whether more than one slice is left."""
        return len(self._received) > _SLICE

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
        # Bytes left between the handshake and `_open`: the loop may read again before that.
        self._received = memoryview(b"".join((self._received, data)) if self._received else data)
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
    from their sockets. Channels that took little time so far go before those that took much, and
    first those with one slice left; among equals, those that have waited longer go first. A turn
    begins with one slice of each of these three kinds, so that none waits for ever.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # By rank: the first ones go first.
        self._waiting: tuple[deque[Channel], ...] = (deque(), deque(), deque())
        self._left = TURN
        self._turning = False

    def process(self, channel: Channel) -> None:
        """Process the bytes that a channel has received, now or in later turns of the loop."""
        while channel.pending:
            if self._left <= 0.0 or any(self._waiting):
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
        rank = 2 if not channel.work.is_light else 1 if channel.is_long else 0
        self._waiting[rank].append(channel)

    def _turn(self) -> None:
        self._left, self._turning = TURN, False
        try:
            for waiting in self._waiting:
                if waiting and self._left > 0.0:
                    self._serve(waiting.popleft())
            while self._left > 0.0 and (first := self._first()):
                self._serve(first.popleft())
        finally:
            # An error in one channel must not stop the others.
            if any(self._waiting):
                self._schedule()

    def _serve(self, channel: Channel) -> None:
        if channel.pending:
            self._step(channel)
        if channel.pending:
            self._queue(channel)
        else:
            channel.set_waiting(False)

    def _first(self) -> deque[Channel] | None:
        return next((each for each in self._waiting if each), None)
