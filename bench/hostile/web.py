"""The web of a hostile crawl: 60 endless good hosts, and the hosts of the attacks.

``python -m bench.hostile.web ATTACK ...`` prints its ports as JSON. After ``begin`` on its input
the good hosts link to the attacks. ``take`` prints the requests since the last ``take``.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import uvloop

from bench.hostile.attacks import ATTACKS, BLACK_HOLE, Attack, Reply, Request, Web, page
from bench.hostile.tls import TLSWeb
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from typing import Self

GOOD_HOSTS = 60
CORE = 1
_LINKS = 20
_BACKLOG = 4096
_ROOM = 65_536
# Seconds between two measurements of the server's own lag.
_BEAT = 0.01
_FILLER = "<p>" + "An ordinary sentence of an ordinary page. " * 100


def good_names() -> dict[str, str]:
    """Return the addresses of the good hosts, each in a block of its own."""
    return {f"good{number}.test": f"127.1.{number}.1" for number in range(GOOD_HOSTS)}


class HostileWeb:
    """The server, in a process of its own, while a ``with`` block runs."""

    def __init__(self, attacks: list[str]):
        self._attacks = attacks

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            ["taskset", "-c", str(CORE), sys.executable, "-m", "bench.hostile.web", *self._attacks],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.web = Web(**self._answer())
        return self

    def __exit__(self, *_: object) -> None:
        # The server ends when its input is closed.
        self._process.communicate(timeout=30)

    def begin(self) -> None:
        """Make the good hosts link to the attacks from now on."""
        self._say("begin")

    def take(self) -> dict[str, Any]:
        """Return the requests since the last call.

        ``good`` are the times of requests to good hosts, by ``time.monotonic()``; ``hostile``
        counts other requests by address; ``ports`` lists the victim's ports that got requests.
        ``lag`` is the most seconds by which the server itself was late.
        """
        self._say("take")
        return self._answer()

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the web of the attacks did not start, see above")
        answer: dict[str, Any] = json.loads(line)
        return answer


class _Server:
    """Shared by all connections: the state, the counts and the answers."""

    def __init__(self, attacks: list[Attack]):
        self.attacks = attacks
        self.begun = False
        self.good: list[float] = []
        self.hostile: Counter[str] = Counter()
        self.ports: set[int] = set()
        self.web = Web(0, 0, 0)
        # The most seconds by which the loop was late since the last ``take``.
        self.lag = 0.0

    async def measure_lag(self) -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(_BEAT)
            self.lag = max(self.lag, time.monotonic() - begun - _BEAT)

    def answer(self, request: Request) -> Reply:
        if request.host.startswith("good"):
            self.good.append(time.monotonic())
            return self._good(request.path)
        self.hostile[request.address] += 1
        if request.port != self.web.port:
            self.ports.add(request.port)
        for attack in self.attacks:
            if (reply := attack.answer(request, self.web)) is not None:
                return reply
        return Reply(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    def _good(self, path: str) -> Reply:
        if path == "/robots.txt":
            return page(b"User-agent: *\nDisallow: /private/\n", kind=b"text/plain")
        with suppress(ValueError):
            number = int(path[1:] or 0)
            links = [f"/{number * _LINKS + each + 1}" for each in range(_LINKS)]
            if self.begun:
                links += [link for attack in self.attacks for link in attack.seeds(self.web)]
            body = "".join(f"<a href={link}>x</a>\n" for link in links) + _FILLER
            return page(f"<!doctype html><title>{number}</title>\n{body}".encode())
        return Reply(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, port = writer.get_extra_info("sockname")[:2]
        # uvloop raises RuntimeError for a closed transport.
        with suppress(
            OSError, RuntimeError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode("latin-1")
                host = next(
                    line[6:].partition(b":")[0]
                    for line in head.split(b"\r\n")
                    if line[:6].lower() == b"host: "
                )
                reply = self.answer(Request(host.decode("latin-1"), path, address, port))
                if reply.after:
                    await asyncio.sleep(reply.after)
                writer.write(reply.data)
                for piece in reply.drip:
                    await asyncio.sleep(reply.every)
                    writer.write(piece)
                    await writer.drain()
                await writer.drain()
        writer.close()


def _black_hole() -> socket.socket:
    """Open a socket that completes no connection, because its backlog is full."""
    full = socket.socket()
    full.bind(("0.0.0.0", 0))
    full.listen(0)
    port = full.getsockname()[1]
    for _ in range(4):
        caller = socket.socket()
        caller.setblocking(False)
        with suppress(BlockingIOError):
            caller.connect(("127.0.0.1", port))
        BLACK_HOLE.append(caller)
    return full


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


async def _serve(names: list[str]) -> None:
    server = _Server([ATTACKS[name] for name in names])
    listening = await asyncio.start_server(server.serve, "0.0.0.0", 0, backlog=_BACKLOG)
    port = _port(listening)
    full = _black_hole()
    scripts = {name: script for each in server.attacks for name, script in each.tls.items()}
    secure = TLSWeb(scripts, server.hostile)
    tls = await asyncio.start_server(secure.serve, "0.0.0.0", 0, backlog=_BACKLOG)
    victims = [await asyncio.start_server(server.serve, "127.9.9.9", 0) for _ in range(100)]
    server.web = Web(port, full.getsockname()[1], _port(tls), [_port(victim) for victim in victims])
    print(json.dumps(server.web.as_dict()), flush=True)
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def listen() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(hear, line.strip())
        loop.call_soon_threadsafe(ended.set_result, None)

    def hear(word: str) -> None:
        if word == "begin":
            server.begun = True
            return
        print(
            json.dumps(
                {
                    "good": server.good,
                    "hostile": server.hostile,
                    "ports": sorted(server.ports),
                    "lag": round(server.lag, 4),
                }
            ),
            flush=True,
        )
        server.good = []
        server.hostile.clear()
        server.lag = 0.0

    threading.Thread(target=listen, daemon=True).start()
    lag = loop.create_task(server.measure_lag())
    await ended
    lag.cancel()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1:]))
