"""The proxy through which the browser fetches: HTTP/1.1 on loopback, CONNECT and absolute URLs.

Every connection names its page by the credentials of that page's browser context. The tunnel that
CONNECT asks for ends here. Nothing is passed on as it comes.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from base64 import b64decode
from binascii import Error as Base64Error
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from OpenSSL import SSL

from krowlspider.browser.certificates import Certificates
from krowlspider.browser.streams import PlainStream, Stream, TLSStream

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Awaitable, Callable

# Bytes of the longest head of a request, and connections at a time.
HEAD_MAX = 64 * 1024
CONNECTIONS_MAX = 1024
# Seconds for the head of a request without credentials before it: so long a stranger holds a place.
_FIRST_HEAD = 30.0
# The first byte of a TLS handshake (RFC 8446, section 5.1). ws: tunnels begin with a letter.
_HANDSHAKE = b"\x16"
_NO_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_BROKEN = (OSError, SSL.Error, ValueError)

Headers = list[tuple[bytes, bytes]]


class BrowserRequest(NamedTuple):
    """A request of the browser; ``page`` is the name of the page that makes it. Names of headers
    are in lower case."""

    page: str
    method: str
    url: str
    headers: Headers

    def value(self, name: bytes) -> bytes:
        """Return the first value of a header; b"" without one."""
        return _value(self.headers, name)


class BrowserResponse(NamedTuple):
    """What the browser gets. The headers are those of the content alone. ``is_last``: then the
    connection ends."""

    status: int
    headers: Headers
    body: bytes = b""
    is_last: bool = False


class _Head(NamedTuple):
    method: str
    target: str
    headers: Headers


class _Heads:
    """Reads the heads of requests from a stream of which the bytes ``begun`` were read already.

    No request with a body is taken, so that the next head follows.
    """

    def __init__(self, stream: Stream, begun: bytes = b""):
        self._stream = stream
        self._data = bytearray(begun)

    async def next(self) -> _Head | None:
        """Return the next head; None at the end of the connection.

        :raises ValueError: it is none, or too long
        """
        while (end := self._data.find(b"\r\n\r\n")) < 0:
            if len(self._data) > HEAD_MAX:
                raise ValueError("the head of a request is too long")
            if not (more := await self._stream.read()):
                return None
            self._data += more
        first, *lines = bytes(self._data[:end]).split(b"\r\n")
        del self._data[: end + 4]
        method, target, _ = first.decode("ascii").split(" ")
        pairs = (line.partition(b":") for line in lines)
        return _Head(method, target, [(name.lower(), value.strip()) for name, _, value in pairs])

    async def closed(self) -> None:
        """Return when the browser has closed the connection, or sent more than it may."""
        while len(self._data) <= HEAD_MAX and (more := await self._stream.read()):
            self._data += more


class BrowserProxy:
    """Listens on a free port of 127.0.0.1 from `start` on.

    ``answer`` is called with each request of a page that ``knows`` knows, and cancelled when the
    browser gives the request up.
    """

    def __init__(
        self,
        answer: Callable[[BrowserRequest], Awaitable[BrowserResponse]],
        knows: Callable[[str], bool],
    ) -> None:
        self.certificates = Certificates()
        self.password = secrets.token_urlsafe(24)
        self._answer = answer
        self._knows = knows
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Begin to take connections, unless it was begun. Return the port."""
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """End all connections."""
        if self._server is None:
            return
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        if len(self._tasks) >= CONNECTIONS_MAX:
            writer.close()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        stream = PlainStream(reader, writer)
        try:
            with suppress(*_BROKEN):
                await self._take(stream)
        finally:
            writer.close()

    async def _take(self, stream: Stream) -> None:
        """Serve a connection until its end, or its tunnel."""
        heads, page = _Heads(stream), None
        while True:
            async with asyncio.timeout(_FIRST_HEAD if page is None else None):
                head = await heads.next()
            if head is None:
                return
            if (page := self._page_of(head.headers)) is None:
                await _send(stream, _UNKNOWN)
            elif head.method == "CONNECT":
                await stream.write(b"HTTP/1.1 200 OK\r\n\r\n")
                await self._tunnel(stream, head.target, page)
                return
            elif not await self._serve_one(stream, heads, head, "", page):
                return

    def _page_of(self, headers: Headers) -> str | None:
        """Return the page whose credentials a request has; None if they are none."""
        kind, _, given = _value(headers, b"proxy-authorization").partition(b" ")
        if kind.lower() != b"basic":
            return None
        try:
            page, _, password = b64decode(given, validate=True).decode().partition(":")
        except (Base64Error, UnicodeDecodeError):
            return None
        is_right = hmac.compare_digest(password.encode(), self.password.encode())
        return page if is_right and self._knows(page) else None

    async def _tunnel(self, stream: Stream, authority: str, page: str) -> None:
        if not (begun := await stream.read()):
            return
        inner, origin, heads = stream, f"http://{authority}", _Heads(stream, begun)
        if begun[:1] == _HANDSHAKE:
            host = authority.rpartition(":")[0].strip("[]")
            inner = TLSStream(stream, self.certificates.context(host), begun)
            origin, heads = f"https://{authority}", _Heads(inner)
        while (head := await heads.next()) is not None:
            if not await self._serve_one(inner, heads, head, origin, page):
                return

    async def _serve_one(
        self, stream: Stream, heads: _Heads, head: _Head, origin: str, page: str
    ) -> bool:
        """Answer a request; return whether the connection goes on."""
        ask = BrowserRequest(page, head.method, origin + head.target, head.headers)
        answering = asyncio.ensure_future(self._answer(ask))
        closed = asyncio.ensure_future(heads.closed())
        try:
            await asyncio.wait({answering, closed}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                return False
            answer = answering.result()
        finally:
            for task in (answering, closed):
                task.cancel()
            await asyncio.gather(answering, closed, return_exceptions=True)
        await _send(stream, answer, has_body=head.method != "HEAD")
        return not answer.is_last


_UNKNOWN = BrowserResponse(407, [(b"proxy-authenticate", b'Basic realm="krowlspider"')])


async def _send(stream: Stream, answer: BrowserResponse, *, has_body: bool = True) -> None:
    status = answer.status
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else ""
    lines = [f"HTTP/1.1 {status} {phrase}".encode()]
    lines += [name + b": " + value for name, value in answer.headers]
    if status not in _NO_BODY:
        lines.append(b"content-length: %d" % len(answer.body))
    if answer.is_last:
        lines.append(b"connection: close")
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    await stream.write(head)
    if has_body and status not in _NO_BODY and answer.body:
        await stream.write(answer.body)


def _value(headers: Headers, name: bytes) -> bytes:
    return next((value for given, value in headers if given == name), b"")
