"""The two ends of a connection from the browser: plain, and TLS as a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from OpenSSL import SSL

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

_PIECE = 64 * 1024


class Stream(Protocol):
    """``read`` returns the bytes that have come, b"" at the end of the connection.

    Both raise OSError when the connection is broken.
    """

    async def read(self) -> bytes: ...
    async def write(self, data: bytes) -> None: ...


class PlainStream:
    """A TCP connection."""

    def __init__(self, reader: StreamReader, writer: StreamWriter):
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        return await self._reader.read(_PIECE)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


class TLSStream:
    """TLS over a stream of which the bytes ``begun`` were read already."""

    def __init__(self, stream: Stream, context: SSL.Context, begun: bytes):
        self._stream = stream
        self._tls = SSL.Connection(context, None)
        self._tls.set_accept_state()
        self._tls.bio_write(begun)

    async def read(self) -> bytes:
        """:raises SSL.Error: the peer does not speak TLS, or refuses the certificate"""
        while True:
            try:
                data: bytes = self._tls.recv(_PIECE)
            except SSL.WantReadError:
                await self._flush()
                if not (data := await self._stream.read()):
                    return b""
                self._tls.bio_write(data)
            except SSL.ZeroReturnError:
                return b""
            else:
                return data

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        for at in range(0, len(view), _PIECE):
            self._tls.sendall(view[at : at + _PIECE])
            await self._flush()

    async def _flush(self) -> None:
        while True:
            try:
                data = self._tls.bio_read(_PIECE)
            except SSL.WantReadError:
                return
            await self._stream.write(data)
