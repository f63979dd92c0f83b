"""The server's side of TLS, made by hand."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fetch.web import Peer


class Records:
    """The server's side of TLS over a plain connection, to send what no server should send."""

    def __init__(self, peer: Peer, context: ssl.SSLContext):
        self._peer = peer
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_side=True)

    async def first_flight(self) -> bytes:
        """Return the server's answer to the ClientHello."""
        self._in.write(await self._peer.some())
        with suppress(ssl.SSLWantReadError):
            self._object.do_handshake()
        return self._out.read()

    async def shake_hands(self) -> bytes:
        """Complete the handshake; return the server's last records of it."""
        while True:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                await self.flush()
                self._in.write(await self._peer.some())
            else:
                return self._out.read()

    async def request(self) -> bytes:
        while True:
            try:
                if data := self._object.read(65_536):
                    return data
            except ssl.SSLWantReadError:
                await self.flush()
                self._in.write(await self._peer.some())

    def say(self, data: bytes) -> bytes:
        """Return the records of some bytes."""
        self._object.write(data)
        return self._out.read()

    def close_notify(self) -> bytes:
        with suppress(ssl.SSLWantReadError):
            self._object.unwrap()
        return self._out.read()

    async def flush(self) -> None:
        await self._peer.send(self._out.read())
