"""TLS between a TCP transport and a connection.

uvloop's own keeps 256 kB for each connection, of which as much is resident as the longest read has touched: 220 kB of an
idle one in a crawl of ordinary pages. This one takes 60, and no more CPU.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from krowlspider.fetch.connection import Connection

# What is decrypted at a time, about one record: OpenSSL keeps a buffer as large as what it was given at most.
_SLICE = 16_384
# As much as a record may hold: RFC 8446, section 5.1.
_RECORD = 16_384


class Channel(asyncio.Protocol):
    """What TCP brings, decrypted, to a connection, which takes this for its transport; and the contrary.

    ``connected`` is when TCP was there, by ``time.perf_counter()``; ``secured`` ends with the handshake: OSError (`ssl.SSLError`
    among them) where it fails.

    An end without close_notify is a lost connection, as an answer that ends with it may be cut (RFC 9112, section 9.8).

    :raises ValueError: OpenSSL takes the name for none
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: ssl.SSLContext,
        server_name: str,
        connection: Connection,
    ) -> None:
        self._connection = connection
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_hostname=server_name)
        self._transport: asyncio.Transport | None = None
        self.connected = 0.0
        self.secured: asyncio.Future[None] = loop.create_future()

    # --- as a transport ---

    def write(self, data: bytes) -> None:
        """Send what the connection has to say."""
        view = memoryview(data)
        try:
            while view:
                view = view[self._object.write(view) :]
        except ssl.SSLError as error:
            self._fail(error)
        self._flush()

    def abort(self) -> None:
        """Close at once."""
        self.secured.cancel()
        if self._transport is not None:
            self._transport.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """``ssl_object``, or what TCP knows."""
        if name == "ssl_object":
            return self._object
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    # --- as a protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connected = time.perf_counter()
        self._transport = cast("asyncio.Transport", transport)
        self._shake_hands()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), _SLICE):
            self._in.write(data[start : start + _SLICE])
            if not self.secured.done():
                self._shake_hands()
            if self.secured.done() and not self._read():
                return
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.secured.done():
            self._refuse(exc or ConnectionResetError("closed during the handshake"))
        elif self._is_up:
            self._connection.connection_lost(exc)

    @property
    def _is_up(self) -> bool:
        secured = self.secured
        return secured.done() and not secured.cancelled() and secured.exception() is None

    def _shake_hands(self) -> None:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._refuse(error)
        else:
            self._connection.connection_made(cast("asyncio.BaseTransport", self))
            self.secured.set_result(None)
        self._flush()

    def _refuse(self, error: Exception) -> None:
        self.secured.set_exception(error)
        # Who was to be told may have been cancelled.
        self.secured.exception()

    def _read(self) -> bool:
        """Hand on what there is; whether more may come."""
        if not self._is_up:
            return False
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
        return not is_over and error is None

    def _fail(self, error: ssl.SSLError) -> None:
        self._connection.connection_lost(error)
        self.abort()

    def _flush(self) -> None:
        if self._out.pending and self._transport is not None:
            self._transport.write(self._out.read())
