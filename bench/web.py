"""The web server of the benchmark: one process on a core of its own, which counts its requests.

It is not nginx, whose pages would have to lie in a folder: 8 GB for 2,000 hosts of 100 pages. None
of nginx's modules makes pages distinct and sends their length.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import socket
import ssl
import subprocess
import sys
import threading
from collections import Counter
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

import uvloop

from bench.pages import ROBOTS, Pages, Shape, address, is_private, path
from tests.fetch.nameserver import nameserver
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

# Crawlers have core 0.
CORE = 1
_BACKLOG = 4096
_HOST = re.compile(rb"\r\nhost: *([^\r\n]+)", re.IGNORECASE)
_HEAD = (
    b"HTTP/1.1 %b\r\nServer: bench\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Type: %b\r\n"
    b"Last-Modified: Wed, 31 Dec 2025 00:00:00 GMT\r\n%bContent-Length: %d\r\n\r\n"
)
_GZIP = b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
_HTML = b"text/html"
_COUNTS = (
    *("robots", "pages", "missing", "disallowed", "strange"),
    *("connections", "bytes", "links", "distinct_links"),
)
_NOT_FOUND = b"<!doctype html><title>Not found</title><p>There is no such page.\n"


class BenchWeb:
    """The server while a ``with`` block runs.

    ``port`` and, where hosts have names, ``dns`` (the port of their name server) are known inside.
    """

    def __init__(self, shape: Shape):
        self.shape = shape

    @property
    def pid(self) -> int:
        """The id of its process, inside the block."""
        return self._process.pid

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.web", json.dumps(asdict(self.shape))],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        ports = self._answer()
        self.dns: int = ports["dns"]
        self.shape = replace(self.shape, port=ports["port"])
        return self

    def __exit__(self, *_: object) -> None:
        # The server ends when its input is closed.
        self._process.communicate(timeout=30)

    def take(self) -> dict[str, Any]:
        """Return the counts since the last call.

        Requests: ``robots``, ``pages`` (status 200), ``missing`` (404), ``disallowed`` by
        robots.txt, ``strange`` (no page of this web). Also ``connections``, ``bytes``, ``links`` to
        other pages on the pages sent, and ``distinct_links``, the sum over the pages. ``numbers``
        are those of all pages requested, in order.
        """
        assert self._process.stdin is not None
        self._process.stdin.write("take\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the web of the benchmark did not start, see above")
        answer: dict[str, Any] = json.loads(line)
        return answer


class _Answers:
    """Makes the answer to each request, and counts it."""

    def __init__(self, pages: Pages):
        self.count: Counter[str] = Counter()
        self.numbers: list[int] = []
        self._pages = pages
        self._shape = shape = pages.shape
        self._hosts = {f"{shape.name(n)}:{shape.port}".encode(): n for n in range(shape.hosts)}
        self._paths = {path(page).encode(): page for page in range(shape.per_host)}

    def answer(self, head: bytes) -> bytes:
        target = head.split(b" ", 2)[1]
        named = _HOST.search(head)
        host = self._hosts.get(named[1].lower()) if named else None
        if target == b"/robots.txt":
            self.count["robots"] += 1
            return _HEAD % (b"200 OK", b"text/plain", b"", len(ROBOTS)) + ROBOTS
        page = self._paths.get(target)
        if host is None or page is None:
            return self._not_found("strange")
        self.count["disallowed"] += is_private(page)
        number = host * self._shape.per_host + page
        self.numbers.append(number)
        if self._shape.missing and self._shape.is_missing(number):
            return self._not_found("missing")
        self.count["pages"] += 1
        return self._page(number, head)

    def _page(self, number: int, head: bytes) -> bytes:
        template = self._pages.template(number)
        self.count["links"] += template.links
        self.count["distinct_links"] += template.distinct
        if self._shape.gzip and b"gzip" in head:
            body, coding = template.packed(number), _GZIP
        else:
            body, coding = template.page(number), b""
        self.count["bytes"] += len(body)
        return _HEAD % (b"200 OK", _HTML, coding, len(body)) + body

    def _not_found(self, why: str) -> bytes:
        self.count[why] += 1
        return _HEAD % (b"404 Not Found", _HTML, b"", len(_NOT_FOUND)) + _NOT_FOUND

    def take(self) -> dict[str, Any]:
        taken = {**{name: self.count[name] for name in _COUNTS}, "numbers": self.numbers}
        self.count, self.numbers = Counter(), []
        return taken


class _Connection(asyncio.Protocol):
    def __init__(self, answers: _Answers, latency: float):
        self._answers = answers
        self._latency = latency
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._answers.count["connections"] += 1
        # The socket listens everywhere, because every 127.x.y.z is a host.
        if not transport.get_extra_info("peername")[0].startswith("127."):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            if self._latency:
                asyncio.get_running_loop().call_later(self._latency, self._send, head)
            else:
                self._send(head)

    def _send(self, head: bytes) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(self._answers.answer(head))
        if b"connection: close" in head.lower():
            self._transport.close()


async def _serve(shape: Shape) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loop = asyncio.get_running_loop()
    listening = socket.create_server(("0.0.0.0", 0), backlog=_BACKLOG)
    shape = replace(shape, port=listening.getsockname()[1])
    answers = _Answers(Pages(shape))
    server = await loop.create_server(
        lambda: _Connection(answers, shape.latency),
        sock=listening,
        ssl=_certificate() if shape.tls else None,
        backlog=_BACKLOG,
    )
    async with _names(shape) if shape.names else nullcontext(0) as dns:
        print(json.dumps({"port": shape.port, "dns": dns}), flush=True)
        ended = asyncio.Event()
        threading.Thread(target=_listen, args=(loop, answers, ended), daemon=True).start()
        await ended.wait()
    server.close()


def _listen(loop: asyncio.AbstractEventLoop, answers: _Answers, ended: asyncio.Event) -> None:
    """Answer the parent process, until it closes the pipe or dies."""
    # os.read: a daemon thread that holds the lock of sys.stdin makes the exit abort.
    while os.read(0, 100):
        loop.call_soon_threadsafe(lambda: print(json.dumps(answers.take()), flush=True))
    loop.call_soon_threadsafe(ended.set)


def _certificate() -> ssl.SSLContext:
    import trustme  # noqa: PLC0415 - only this variant needs it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    trustme.CA().issue_cert("*.test", "127.10.0.1").configure_cert(context)
    return context


@asynccontextmanager
async def _names(shape: Shape) -> AsyncIterator[int]:
    """Run a name server that knows the hosts; yield its port."""
    found: dict[str, tuple[int, list[str]] | int | None] = {
        shape.name(host): (86_400, [address(host)]) for host in range(shape.hosts)
    }
    async with nameserver(found) as zone:
        yield zone.port


if __name__ == "__main__":
    if (os.cpu_count() or 1) > CORE:
        os.sched_setaffinity(0, {CORE})
    uvloop.run(_serve(Shape(**json.loads(sys.argv[1]))))
