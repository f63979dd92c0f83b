"""A web of raw bytes: it sends the bytes of the test, and records the bytes it receives."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_ROOM = 65_536


@dataclass(frozen=True)
class Raw:
    """The bytes of an answer.

    With ``closes``, the connection closes after it. The answer must say so, or the client may send
    another request. With ``hangs``, nothing follows, and the connection stays open until the client
    closes it. ``others`` are answers to requests that have these bytes.
    """

    data: bytes
    closes: bool = False
    hangs: bool = False
    others: Mapping[bytes, bytes] = field(default_factory=dict)

    def to(self, request: bytes) -> bytes:
        """Return the bytes of the answer to a request."""
        return next((data for what, data in self.others.items() if what in request), self.data)


NOT_FOUND = Raw(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


class RawWeb:
    """Answers by path on 127.0.0.1, the same for all hosts, inside the ``with`` block. Any other
    path is a 404.

    ``requests`` are path and bytes of each request, in the order in which they ended. ``secured``
    are the TLS version and cipher of each connection, by OpenSSL's names.
    """

    def __init__(self, answers: Mapping[str, Raw], tls: ssl.SSLContext | None = None) -> None:
        self._answers = answers
        self._tls = tls
        self.requests: list[tuple[str, bytes]] = []
        self.secured: list[tuple[str, str]] = []
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        # A close without shutdown does not wake a thread that waits in accept or recv.
        for each in (self._listening, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        while self._threads:
            self._threads.pop().join()
        self._listening.close()

    def url(self, host: str, path: str = "/") -> str:
        """Return the URL of a path on a host."""
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}{path}"

    @property
    def asked(self) -> list[str]:
        """The paths requested so far."""
        return [path for path, _ in self.requests]

    def _start(self, act: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=act, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._open.add(connection)
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError):
            if self._tls is not None:
                self._open.discard(connection)
                connection = secured = self._tls.wrap_socket(connection, server_side=True)
                self._open.add(connection)
                cipher = secured.cipher()
                assert cipher is not None
                self.secured.append((secured.version() or "", cipher[0]))
            while request := _read(connection):
                path = request.split(b" ", 2)[1].decode()
                self.requests.append((path, request))
                answer = self._answers.get(path, NOT_FOUND)
                connection.sendall(answer.to(request))
                if answer.hangs:
                    connection.recv(_ROOM)
                if answer.closes or answer.hangs:
                    break
        self._open.discard(connection)
        connection.close()


def _read(connection: socket.socket) -> bytes:
    """Return the next request with its body; b"" if the client has closed."""
    data = b""
    while not (request := first_request(data)):
        data += (more := connection.recv(_ROOM))
        if not more:
            return b""
    return request


def first_request(data: bytes) -> bytes:
    """Return the first request in the data, with its body; b"" if it is not complete."""
    head, end, _ = data.partition(b"\r\n\r\n")
    found = _LENGTH.search(head + end)
    size = len(head) + len(end) + (int(found[1]) if found else 0)
    return data[:size] if end and len(data) >= size else b""


HTML = b"Content-Type: text/html"


def answer(*lines: bytes, body: bytes = b"", status: bytes = b"HTTP/1.1 200 OK") -> bytes:
    """Return an answer with these header lines and its length."""
    length = b"Content-Length: %d" % len(body)
    return b"\r\n".join([status, *lines, length, b"", body])
