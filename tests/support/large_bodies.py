"""Crawl large bodies that are all in flight at once, and measure the memory of the crawl.

As a command it prints the figures of docs/benchmarks.md::

    .venv/bin/python -m tests.support.large_bodies 256
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

from tests.support.crawling import Crawl, write_seeds
from tests.support.rawweb import NOT_FOUND, first_request

if TYPE_CHECKING:
    from collections.abc import Callable

MB = 1_000_000
SIZE = 10 * MB
CHUNK = 100_000
# The same for all bodies but for their first bytes, and not compressible.
_TAIL = os.urandom(SIZE - 20)


def body(number: int) -> bytes:
    return b"%020d" % number + _TAIL


def framed(number: int) -> bytes:
    """Return a whole response: every second one is chunked."""
    head, content = b"HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\n", body(number)
    if number % 2 == 0:
        return head + b"Content-Length: %d\r\n\r\n" % len(content) + content
    parts = [content[at : at + CHUNK] for at in range(0, len(content), CHUNK)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


class LargeWeb:
    """Serves page ``/N`` of each host with `framed`, inside the ``with`` block.

    Each response trickles from its last tenth on until ``count`` have come so far, when
    ``in_flight`` is called, once. ``first`` is called before the first one begins.
    """

    def __init__(self, count: int, first: Callable[[], None], in_flight: Callable[[], None]):
        self._first = first
        self._begun = threading.Lock()
        self._in_flight = in_flight
        self._left = count
        self._counting = threading.Lock()
        self._all_came = threading.Event()

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._all_came.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # The crawl may be killed meanwhile.
        with connection, suppress(OSError):
            data = b""
            while more := connection.recv(65536):
                data += more
                while request := first_request(data):
                    data = data[len(request) :]
                    self._answer(connection, request.split(b" ")[1].decode()[1:])

    def _answer(self, connection: socket.socket, path: str) -> None:
        if not path.isdigit():
            connection.sendall(NOT_FOUND.data)
            return
        if self._begun.acquire(blocking=False):
            self._first()
        response = framed(int(path))
        most = len(response) * 9 // 10
        connection.sendall(response[:most])
        with self._counting:
            self._left -= 1
            if self._left == 0:
                self._in_flight()
                self._all_came.set()
        # Faster than the least rate of an answer.
        while not self._all_came.wait(1.0):
            connection.sendall(response[most : most + CHUNK // 100])
            most += CHUNK // 100
        connection.sendall(memoryview(response)[most:])


@dataclass(frozen=True)
class Measured:
    """Resident bytes before the first body, with all in flight, and at most."""

    crawl: Crawl
    before: int
    in_flight: int
    most: int


def measure(folder: Path, count: int) -> Measured:
    """Crawl ``count`` bodies of 10 MB from as many hosts."""
    found: dict[str, int] = {}

    def note(name: str) -> None:
        found[name] = _resident(crawl, "VmRSS")

    web = LargeWeb(count, lambda: note("before"), lambda: note("in_flight"))
    with web:
        seeds = [f"http://h{number}.test:{web.port}/{number}" for number in range(count)]
        crawl = Crawl(
            folder / "job",
            arguments={"seeds": write_seeds(folder / "seeds.txt", seeds)},
            settings={
                "KROWL_DELAY_MIN": 0,
                "KROWL_DELAY_FACTOR": 0,
                "KROWL_SKIP_EXTENSIONS": "",
                "DOWNLOAD_TIMEOUT": 300,
            },
            feed=False,
            cold=True,
        ).start()
        most = 0
        while crawl.process.poll() is None:
            most = max(most, _resident(crawl, "VmHWM"))
            threading.Event().wait(0.05)
        crawl.wait()
    return Measured(crawl, found["before"], found["in_flight"], most)


def _resident(crawl: Crawl, name: str) -> int:
    """Return a value of a crawl's memory in bytes; 0 if it has ended."""
    try:
        status = Path(f"/proc/{crawl.process.pid}/status").read_text()
    except FileNotFoundError:
        return 0
    value = re.search(rf"{name}:\s+(\d+) kB", status)
    return 1024 * int(value[1]) if value else 0


def main() -> None:
    with TemporaryDirectory() as folder:
        measured = measure(Path(folder), int(sys.argv[1]))
        for name in ("before", "in_flight", "most"):
            print(f"{name}: {getattr(measured, name) / MB:.0f} MB")
        print(
            {
                name: value
                for name, value in measured.crawl.stats.items()
                if "memory" in name
                or "done" in name
                or "failed" in name
                or "lag" in name
                or "elapsed" in name
            }
        )


if __name__ == "__main__":
    main()
