"""A proxy on loopback that records what goes through it. Every name is at 127.0.0.1."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOM = 65_536


@dataclass(frozen=True)
class Passed:
    """A request to the proxy: its kind, its target, and the credentials that came with it."""

    kind: str
    target: str
    credentials: str = ""


class TestProxy:
    """A proxy for HTTP and SOCKS5 inside the ``with`` block.

    With ``credentials`` (``user:password``), it denies all others. ``refusal`` is its status for
    CONNECT, or its reply of SOCKS5; 0 to connect. ``passed`` are the requests that it got. It may
    be entered again, at the same port. ``own`` is an answer of its own to each request, if not
    empty.
    """

    __test__ = False

    def __init__(self, credentials: str = "", refusal: int = 0) -> None:
        self.credentials = credentials
        self.refusal = refusal
        self.own = b""
        self.port = 0
        self.passed: list[Passed] = []
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listening.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listening, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        while self._threads:
            self._threads.pop().join()
        for each in (self._listening, *self._open):
            each.close()
        self._open.clear()

    def url(self, credentials: str = "", scheme: str = "http") -> str:
        return f"{scheme}://{credentials}{'@' if credentials else ''}127.0.0.1:{self.port}"

    def _start(self, act: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=act, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._open.add(client)
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            first = client.recv(1, socket.MSG_PEEK)
            (self._serve_socks if first == b"\x05" else self._serve_http)(client)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _serve_http(self, client: socket.socket) -> None:
        origin: socket.socket | None = None
        data = b""
        while data := data or client.recv(_ROOM):
            while b"\r\n\r\n" not in data:
                data += client.recv(_ROOM)
            head, _, body = data.partition(b"\r\n\r\n")
            line, *fields = head.split(b"\r\n")
            method, target, _ = line.decode().split(" ")
            given = [each for each in fields if each.startswith(b"Proxy-Authorization: ")]
            credentials = given[0].decode().rpartition(" ")[2] if given else ""
            self.passed.append(Passed(method, target, credentials))
            if self.own:
                client.sendall(self.own)
                return
            if method == "CONNECT" and self.refusal:
                client.sendall(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % self.refusal)
                return
            if credentials != b64encode(self.credentials.encode()).decode():
                client.sendall(b"HTTP/1.1 407 Denied\r\nContent-Length: 6\r\n\r\nDenied")
                return
            if method == "CONNECT":
                origin = self._connect(int(target.rpartition(":")[2]))
                client.sendall(b"HTTP/1.1 200 Connected\r\nVia: 1.1 test\r\n\r\n")
                self._relay(client, origin)
                return
            url = urlsplit(target)
            port = url.port
            assert port is not None
            origin = origin or self._connect(port)
            own = [each for each in fields if each not in given]
            start = f"{method} {url.path} HTTP/1.1".encode()
            origin.sendall(b"\r\n".join([start, *own, b"", body]))
            client.sendall(_answer_of(origin))
            data = b""

    def _serve_socks(self, client: socket.socket) -> None:
        """SOCKS5 (RFC 1928), with user and password (RFC 1929) if there are credentials."""
        _, count = _exactly(client, 2)
        method = 2 if self.credentials else 0
        if method not in _exactly(client, count):
            client.sendall(b"\x05\xff")
            return
        client.sendall(bytes([5, method]))
        credentials = ""
        if method:
            user = _exactly(client, _exactly(client, 2)[1]).decode()
            credentials = f"{user}:{_exactly(client, _exactly(client, 1)[0]).decode()}"
        if method and credentials != self.credentials:
            client.sendall(b"\x01\x01")
            return
        client.sendall(b"\x01\x00" if method else b"")
        kind = _exactly(client, 4)[3]
        if kind == 3:
            host = _exactly(client, _exactly(client, 1)[0]).decode()
        else:
            host = str(ip_address(_exactly(client, 4 if kind == 1 else 16)))
        port = int.from_bytes(_exactly(client, 2))
        self.passed.append(Passed("SOCKS5", f"{host}:{port}", credentials))
        # The address in the reply is a name, as an address of 4 bytes is the usual case.
        client.sendall(bytes([5, self.refusal, 0, 3, 4]) + b"here\x00\x00")
        if not self.refusal:
            self._relay(client, self._connect(port))

    def _relay(self, client: socket.socket, origin: socket.socket) -> None:
        """Pass the bytes of both sides on until one closes."""
        self._start(_pump, origin, client)
        _pump(client, origin)

    def _connect(self, port: int) -> socket.socket:
        origin = socket.create_connection(("127.0.0.1", port))
        self._open.add(origin)
        return origin


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += (more := source.recv(size - len(data)))
        if not more:
            raise ConnectionError
    return data


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_ROOM):
            sink.sendall(data)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _answer_of(origin: socket.socket) -> bytes:
    """Return the next answer, which has a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += origin.recv(_ROOM)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += (more := origin.recv(_ROOM))
        data += more
    return data
