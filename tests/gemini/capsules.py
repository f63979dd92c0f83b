"""Serve capsules on loopback, and note each connection.

`python -m tests.gemini.capsules --tree hosts=200,pages=100 --log FILE` serves in a process of its
own; `Capsules` in a thread.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from tests.gemini.answers import NOT_FOUND, Answer
from tests.gemini.certificates import Contexts, Identity
from tests.gemini.tree import Tree
from tests.gemini.visits import Visit, line_of, read_visits

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parents[2]
_BACKLOG = 4_096
# Bytes of a request that are read. The specification allows 1,024, and the line end.
_REQUEST = 2_048
# Seconds in which a client must end its handshake, and ask, and read the answer.
_PATIENCE = 60.0
# A close without waiting for what was not sent yet: it resets the connection.
_NO_LINGER = struct.pack("ii", 1, 0)


class Web(Protocol):
    """What the capsules of a server are: their answers and certificates, by the host's name.

    ``connections`` are those of the host before this one.
    """

    def answer(self, host: str, target: str) -> Answer: ...

    def identity(self, host: str, connections: int) -> Identity: ...


class Paths:
    """A web of given answers: by the path and query, or by `name/path` for those of one host.

    Each other path is not found; a robots.txt too, unless there is one. An answer may be a function
    that makes it, which is called with the number of requests of it before. A test may change
    ``answers`` and ``identities``, by host, while they are served.
    """

    def __init__(self, answers: Mapping[str, Answer | Callable[[int], Answer]]) -> None:
        self.answers = dict(answers)
        self.identities: dict[str, Identity] = {}
        self._asked: Counter[str] = Counter()

    def answer(self, host: str, target: str) -> Answer:
        key = f"{host}{target}"
        found = self.answers.get(key, self.answers.get(target, NOT_FOUND))
        self._asked[key] += 1
        return found if isinstance(found, Answer) else found(self._asked[key] - 1)

    def identity(self, host: str, connections: int) -> Identity:
        return self.identities.get(host, Identity())


class Server:
    """Answers connections by a web. ``note`` is called with each visit when it has ended."""

    def __init__(self, web: Web, note: Callable[[Visit], object]) -> None:
        self._web = web
        self._note = note
        self._contexts = Contexts()
        self._connections: Counter[str] = Counter()
        # The names in the handshakes.
        self._names: WeakKeyDictionary[ssl.SSLObject, str] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, sock: socket.socket) -> asyncio.Server:
        self.port: int = sock.getsockname()[1]
        return await asyncio.start_server(self._accept, sock=sock, limit=_REQUEST)

    async def end(self) -> None:
        """Cut all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Nothing may be read of it before TLS reads.
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = Visit("", "", "", time.monotonic(), 0.0, is_whole=False)
        raw = writer.transport
        try:
            async with asyncio.timeout(_PATIENCE):
                await writer.start_tls(self._context(writer.get_extra_info("sockname")[0]))
                visit.server_name = self._names.get(writer.get_extra_info("ssl_object"), "")
                await self._exchange(visit, reader, writer, raw)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            # The client went, or asked for nothing that can be answered.
            pass
        finally:
            if not visit.is_whole:
                visit.ended = time.monotonic()
            visit.host = visit.host or f"{visit.server_name}:{self.port}"
            self._note(visit)
            raw.abort()

    def _context(self, address: str) -> ssl.SSLContext:
        """Return a context that takes the certificate of the name in the handshake. Without a name,
        the address stands for it."""
        context = self._contexts.of(address, self._web.identity(address, 0))
        context.sni_callback = self._choose
        return context

    def _choose(self, tls: ssl.SSLObject, name: str | None, _: object) -> None:
        if name:
            self._names[tls] = name
            identity = self._web.identity(name, self._connections[name])
            self._connections[name] += 1
            tls.context = self._contexts.of(name, identity)

    async def _exchange(
        self,
        visit: Visit,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        raw: asyncio.WriteTransport,
    ) -> None:
        line = await reader.readuntil(b"\r\n")
        visit.url = line[:-2].decode(errors="replace")
        parts = urlsplit(visit.url)
        name = parts.hostname or ""
        visit.host = f"{name}:{parts.port or 1965}"
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        answer = self._web.answer(name, target)
        if answer.wait:
            await asyncio.sleep(answer.wait)
        visit.status = answer.status
        await _send(visit, answer, writer)
        await _close(answer.close, reader, writer, raw)


async def _send(visit: Visit, answer: Answer, writer: asyncio.StreamWriter) -> None:
    for index in range(answer.times):
        content = answer.body if index else answer.header + answer.body
        size = answer.piece or max(len(content), 1)
        for at in range(0, max(len(content), 1), size):
            if index + 1 == answer.times and at + size >= len(content):
                visit.ended = time.monotonic()
            writer.write(content[at : at + size])
            await writer.drain()
            if answer.pause:
                await asyncio.sleep(answer.pause)
    visit.is_whole = True


async def _close(
    how: str,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    raw: asyncio.WriteTransport,
) -> None:
    """End a connection; return when the client has ended it too."""
    if how == "notify":
        writer.close()
        await writer.wait_closed()
    elif how == "never":
        await reader.read()
    elif how == "cut":
        # What is written stands in the transport below that of TLS, which sends it and then closes.
        raw.close()
    else:
        raw.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


class Capsules:
    """A server of a web in a thread, at a free port of each address of 127.0.0.0/8.

    ``visits`` are the connections that have ended, in that order.
    """

    def __init__(self, web: Web) -> None:
        self.visits: list[Visit] = []
        self._server = Server(web, self.visits.append)
        self._socket = _socket(0)
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._stop: asyncio.Event | None = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def url(self, path: str = "/", host: str = "capsule.test") -> str:
        return f"gemini://{host}:{self.port}{path}"

    def asked(self) -> Counter[str]:
        """Return how often each URL was asked for."""
        return Counter(visit.url for visit in self.visits if visit.url)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        listening = await self._server.listen(self._socket)
        self._begun.set()
        await self._stop.wait()
        listening.close()
        await self._server.end()


class CapsuleProcess:
    """A server of a tree in a process of its own, for whole crawls."""

    def __init__(self, tree: Tree, folder: Path) -> None:
        self._log = folder / "capsules.log"
        text = f"hosts={tree.hosts},pages={tree.pages},changing={tree.changing}"
        command = [sys.executable, "-m", "tests.gemini.capsules", "--log", str(self._log)]
        self._process = subprocess.Popen(
            [*command, "--tree", f"{text},filler={tree.filler}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        port = json.loads(self._process.stdout.readline())["port"]
        self.tree = replace(tree, port=port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> list[Visit]:
        """End the server; return all visits."""
        if self._process.poll() is None:
            # The server ends when its input does.
            self._process.communicate(timeout=30)
        return read_visits(self._log)

    def visits(self) -> list[Visit]:
        """Return the visits that are in the log, which is written after some tens of them."""
        return read_visits(self._log) if self._log.exists() else []


def _socket(port: int) -> socket.socket:
    # Every 127.x.y.z is a host.
    return socket.create_server(("0.0.0.0", port), backlog=_BACKLOG)


async def _serve_tree(tree: Tree, log: Path) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def watch() -> None:
        # os.read: a daemon thread that holds the lock of sys.stdin makes the exit abort.
        while os.read(0, 4_096):
            pass
        loop.call_soon_threadsafe(stop.set)

    with log.open("a", encoding="utf-8") as file:
        listener = _socket(0)
        made = replace(tree, port=listener.getsockname()[1])
        server = Server(made, lambda visit: file.write(line_of(visit)))
        listening = await server.listen(listener)
        print(json.dumps({"port": server.port}), flush=True)
        threading.Thread(target=watch, daemon=True).start()
        await stop.wait()
        listening.close()
        await server.end()


def main() -> None:
    """Run the command: serve a tree until the end of stdin."""
    parser = argparse.ArgumentParser(prog="python -m tests.gemini.capsules", description=__doc__)
    parser.add_argument("--tree", type=Tree.parse, required=True, metavar="hosts=200,pages=100")
    parser.add_argument("--log", type=Path, required=True, metavar="FILE")
    arguments = parser.parse_args()
    # Not uvloop: it reads of a connection before TLS can.
    asyncio.run(_serve_tree(arguments.tree, arguments.log))


if __name__ == "__main__":
    main()
