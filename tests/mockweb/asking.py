"""Ask the mock web as a browser does, and write entries of its log."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

from tests.mockweb import Entry, MockWeb

HOST = "127.9.8.7"
BOUND_S = 20.0  # of every wait for an event: a failure, not a pace


def talk(web: MockWeb, request: str) -> bytes:
    """Sends raw text to the server and reads until it closes."""
    with socket.create_connection((HOST, web.port), BOUND_S) as sock:
        sock.sendall(request.encode())
        return b"".join(iter(lambda: sock.recv(65_536), b""))


def get(web: MockWeb, path: str, *, host: str = HOST, method: str = "GET") -> bytes:
    """The raw bytes of one answer on a connection of its own."""
    lines = f"{method} {path} HTTP/1.1\r\nHost: {host}:{web.port}\r\n"
    return talk(web, f"{lines}User-Agent: test/1\r\nConnection: close\r\n\r\n")


def body(raw: bytes) -> bytes:
    return raw.partition(b"\r\n\r\n")[2]


def status(raw: bytes) -> int:
    return int(raw.split(b" ", 2)[1])


def spec(**rule: Any) -> list[dict[str, Any]]:
    return [{"path": "/x", **rule}]


def entry(start: float, end: float, url: str = "http://h/p", **fields: Any) -> Entry:
    parts = urlsplit(url)
    made = Entry(start, end, parts.netloc, parts.path, "GET", 200, 1, "", "", 0, "", False, True, 0)
    for name, value in fields.items():
        setattr(made, name, value)
    return made
