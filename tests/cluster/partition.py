"""Networks between nodes and their servers, in threads of the test: wires that are cut for some
nodes and not for others, and an agent that denies what it knows.

A wire belongs to one node, or finds the node at its end by the kernel's table of connections. So
this needs no root and no network namespaces. A cut swallows all data, both ways: connections stay,
new ones are taken, nothing comes through. Data under way arrives late, when the cut heals.
"""

from __future__ import annotations

import asyncio
import http.client
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from tests.cluster.servers import Server

_T = TypeVar("_T")

_PIECE = 65_536
# Seconds; longer than any blocking query of a node.
_TIMEOUT = 120.0


class Network:
    """Wires to servers, inside the `with` block. ``processes`` names the node of each process by
    its id."""

    def __init__(self) -> None:
        self.processes: dict[int, str] = {}
        self._urls: dict[tuple[str, str | None], str] = {}
        self._apart: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._listeners: list[asyncio.Server] = []
        self._copies: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def wire(self, server: Server, *, beside: str | None = None, asker: str | None = None) -> str:
        """The URL by which ``asker`` reaches ``server``, or all do; the server stands ``beside`` a
        node, or beside none."""
        if (server.url, asker) not in self._urls:
            port = self._do(self._listen(server, beside, asker))
            url = urlsplit(server.url)._replace(netloc=f"{server.host}:{port}").geturl()
            self._urls[server.url, asker] = url
        return self._urls[server.url, asker]

    @contextmanager
    def parted(self, *nodes: str) -> Iterator[None]:
        """These nodes and the servers beside them are on one side, all else is on the other."""
        self._do(self._part(frozenset(nodes)))
        try:
            yield
        finally:
            self._do(self._part(frozenset()))

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT)

    async def _part(self, apart: frozenset[str]) -> None:
        self._apart = apart
        self._changed.set()
        self._changed = asyncio.Event()

    async def _listen(self, server: Server, beside: str | None, of: str | None) -> int:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.add(writer)
            asker = of or self._at_the_end(writer)
            if asker is None:
                # Gone already; or not known, and then nothing may come through.
                writer.close()
                return
            await self._free(asker, beside)
            try:
                far_reader, far_writer = await asyncio.open_connection(server.host, server.port)
            except OSError:
                writer.close()
                return
            self._writers.add(far_writer)
            for one, other in ((reader, far_writer), (far_reader, writer)):
                copy = asyncio.create_task(self._copy(one, other, asker, beside))
                self._copies.add(copy)
                copy.add_done_callback(self._copies.discard)

        listener = await asyncio.start_server(connected, server.host, 0)
        self._listeners.append(listener)
        port: int = listener.sockets[0].getsockname()[1]
        return port

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asker: str,
        beside: str | None,
    ) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(_PIECE):
                    await self._free(asker, beside)
                    writer.write(data)
                    await writer.drain()
            await self._free(asker, beside)
        finally:
            writer.close()

    async def _free(self, asker: str, beside: str | None) -> None:
        """Wait until both are on one side."""
        while (asker in self._apart) != (beside in self._apart):
            await self._changed.wait()

    def _at_the_end(self, writer: asyncio.StreamWriter) -> str | None:
        """The node whose process has connected."""
        # By both ends: one port may be that of several connections, each to another server.
        ends = [_as_in_proc(*writer.get_extra_info(name)) for name in ("peername", "sockname")]
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        sockets = {f"socket:[{row[9]}]" for row in rows if row[1:3] == ends}
        for process, node in list(self.processes.items()):
            with suppress(OSError):
                for descriptor in Path(f"/proc/{process}/fd").iterdir():
                    # One of them may be closed meanwhile.
                    with suppress(OSError):
                        if str(descriptor.readlink()) in sockets:
                            return node
        return None

    async def _end(self) -> None:
        for listener in self._listeners:
            listener.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for writer in self._writers:
            # A close would wait for a peer that reads nothing.
            writer.transport.abort()
        # One turn of the loop, in which the sockets are closed.
        await asyncio.sleep(0)


def _as_in_proc(host: str, port: int) -> str:
    return "".join(f"{int(part):02X}" for part in reversed(host.split("."))) + f":{port:04X}"


class Denial:
    """An agent at ``url`` that passes on what the real one says, but while ``denying``: keys below
    ``prefix`` are not there then, by one of the two forms in which Consul says so."""

    def __init__(self, agent: Server, prefix: str) -> None:
        self.denying = False
        self.denied = 0
        denial = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if denial.denying and self.command == "GET" and self.path.startswith(prefix):
                    denial.denied += 1
                    empty = (404, b"") if denial.denied % 2 else (200, b"[]")
                    self._answer(*empty, {"X-Consul-Index": "1"})
                    return
                far = http.client.HTTPConnection(agent.host, agent.port, timeout=_TIMEOUT)
                try:
                    far.request(self.command, self.path, body, dict(self.headers))
                    said = far.getresponse()
                    self._answer(said.status, said.read(), dict(said.headers))
                except (OSError, http.client.HTTPException):
                    self.close_connection = True
                finally:
                    far.close()

            def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_DELETE = pass_on

            def log_message(self, *_: object) -> None:
                """Nothing: what it does is counted."""

        class Listener(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *_: object) -> None:
                """A node that was killed or gave up."""

        self._listener = Listener((agent.host, 0), Handler)
        self.url = f"http://{agent.host}:{self._listener.server_port}"
        self._thread = threading.Thread(target=self._listener.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()
