"""TLS between a TCP transport and a connection.

uvloop's own keeps 256 kB for each connection, of which as much is resident as the longest read has touched: 220 kB of an
idle one in a crawl of ordinary pages. This one takes 60, and no more CPU.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from krowlspider.fetch.connection import Connection
    from krowlspider.fetch.loopclock import LoopClock

# What is decrypted at a time, about one record: OpenSSL keeps a buffer as large as what it was given at most.
_SLICE = 16_384
# As much as a record may hold: RFC 8446, section 5.1.
_RECORD = 16_384


class Channel(asyncio.Protocol):
    """What TCP brings, decrypted, to a connection, which takes this for its transport; and the contrary.

    ``connected`` is when TCP was there, by ``clock``; ``secured`` ends with the handshake: OSError (`ssl.SSLError`
    among them) where it fails. What the server says before it is asked waits until those who await ``secured`` have had
    their turn.

    An end without close_notify is a lost connection, as an answer that ends with it may be cut (RFC 9112, section 9.8).

    :raises ValueError: OpenSSL takes the name for none
    """

    def __init__(
        self,
        clock: LoopClock,
        context: ssl.SSLContext,
        server_name: str,
        connection: Connection,
    ) -> None:
        self._clock = clock
        self._connection = connection
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_hostname=server_name)
        self._transport: asyncio.Transport | None = None
        self._unsent = b""
        self._error: ssl.SSLError | None = None
        # Whether the connection is given what comes.
        self._is_open = False
        self.connected = 0.0
        self.secured: asyncio.Future[None] = clock.loop.create_future()

    # --- as a transport ---

    def write(self, data: bytes) -> None:
        """Send what the connection has to say."""
        self._unsent += data
        self._send()

    def abort(self) -> None:
        """Close at once."""
        self.secured.cancel()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """``ssl_object``, which is all that a connection asks for."""
        return self._object if name == "ssl_object" else default

    # --- as a protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connected = self._clock.time()
        self._transport = cast("asyncio.Transport", transport)
        self._shake_hands()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), _SLICE):
            self._in.write(data[start : start + _SLICE])
            if self._is_open:
                self._read()
            elif not self.secured.done():
                self._shake_hands()
        if self._is_open:
            self._send()

    def eof_received(self) -> None:
        # Nothing more can be answered, whatever is still to be sent.
        if self._is_open:
            self._connection.closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self.secured.done():
            self._connection.connection_lost(self._error or exc)
        else:
            self._refuse(exc or ConnectionResetError("closed during the handshake"))

    def _shake_hands(self) -> None:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
        except ssl.SSLError as error:
            self._send()
            self._refuse(error)
        else:
            self._connection.connection_made(cast("asyncio.BaseTransport", self))
            self.secured.set_result(None)
            # The last of the handshake goes with the request.
            self._clock.loop.call_soon(self._open)

    def _refuse(self, error: Exception) -> None:
        # Without its traceback, which holds this.
        self.secured.set_exception(error.with_traceback(None))
        # Who was to be told may have been cancelled.
        self.secured.exception()

    def _open(self) -> None:
        self._is_open = True
        self._read()
        self._send()

    def _read(self) -> None:
        """Hand on what there is."""
        parts: list[bytes] = []
        is_over, error = False, None
        try:
            while part := self._object.read(_RECORD):
                parts.append(part)
            # Its close_notify.
            is_over = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as e:
            error = e
        if parts:
            self._connection.data_received(b"".join(parts))
        if is_over:
            self._connection.eof_received()
            self.abort()
        elif error is not None:
            self._fail(error)

    def _send(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._object.write(self._unsent) :]
        except ssl.SSLWantReadError:
            # The server asked for another handshake: after its next word.
            pass
        except ssl.SSLError as error:
            self._fail(error)
        if self._out.pending and self._transport is not None:
            self._transport.write(self._out.read())

    def _fail(self, error: ssl.SSLError) -> None:
        # An exchange hears of it once TCP has ended, never while it is being begun; no new one is.
        self._connection.closed = True
        self._error = self._error or error.with_traceback(None)
        self.abort()
