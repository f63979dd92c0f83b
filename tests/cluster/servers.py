"""Real Redis servers, Consul agents and a Prometheus on loopback, which a test freezes, kills and
starts again.

Each context manager yields a `Server` that answers already, and ends it; `relay` puts a wire
between a server and one of those who ask it, which can be cut by itself. ``python -m
tests.cluster.servers HOST PORT TO_HOST TO_PORT`` is that wire.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.support.crawling import ROOT
from tests.support.debian import program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

# Seconds; a server that takes longer to start is a failure, with its log.
_TIMEOUT = 30.0


def _own_address() -> str:
    """An address of loopback that no other process of the tests takes, so that a port stays ours
    between two starts."""
    pid = os.getpid()
    # Linux numbers processes up to 2^22.
    return f"127.{64 + (pid >> 16) % 64}.{pid >> 8 & 255}.{pid & 255}"


def free_port(host: str) -> int:
    (port,) = free_ports(host, 1)
    return port


def free_ports(host: str, count: int) -> list[int]:
    """Ports that are not taken, no two the same."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind((host, 0))
        return [listener.getsockname()[1] for listener in listeners]


@dataclass
class Server:
    """A process with a folder of its own that listens at ``url``."""

    url: str
    folder: Path
    command: Sequence[str | Path]
    answers: Callable[[], bool]
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start it, with what its folder holds, and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
            )
        end = time.monotonic() + _TIMEOUT
        while not self.answers():
            assert self.process.poll() is None, f"it ended:\n{self.log[-3000:]}"
            assert time.monotonic() < end, f"it does not answer:\n{self.log[-3000:]}"
            time.sleep(0.02)

    def freeze(self) -> None:
        """It keeps its connections, takes new ones, and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; a frozen one too."""
        self.process.kill()
        self.process.wait()

    def wipe(self) -> None:
        """Remove its folder, so that the next start knows nothing; it must have been killed."""
        shutil.rmtree(self.folder)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        self.freeze()
        try:
            yield
        finally:
            self.thaw()


@contextmanager
def _running(server: Server) -> Iterator[Server]:
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextmanager
def redis_server(folder: Path, *options: str, host: str = "") -> Iterator[Server]:
    """A Redis that keeps an append-only file in ``folder``; ``options`` as on its command line
    ("--maxmemory", "2mb").

    ``url`` is ``redis://HOST:PORT/0``.
    """
    host = host or _own_address()
    port = free_port(host)
    command = [
        *(program("redis-server"), "--bind", host, "--port", str(port), "--dir", folder),
        *("--appendonly", "yes", "--save", "", *options),
    ]

    def answers() -> bool:
        try:
            with socket.create_connection((host, port), 1) as connection:
                connection.sendall(b"PING\r\n")
                reply = connection.recv(64)
        except OSError:
            return False
        # While it reads its file it says -LOADING; with a password -NOAUTH.
        return reply.startswith((b"+PONG", b"-NOAUTH"))

    with _running(Server(f"redis://{host}:{port}/0", folder, command, answers)) as server:
        yield server


@contextmanager
def consul_agent(folder: Path, host: str = "", **configuration: object) -> Iterator[Server]:
    """A Consul agent that is its own only server, with its data in ``folder``; ``url`` is
    ``http://HOST:PORT``.

    Sessions may have a TTL of 1 s here, where the least is 10 s otherwise; ``configuration`` as in
    its file.
    """
    host = host or _own_address()
    http, serf, server = free_ports(host, 3)
    config = {
        "server": True,
        "bootstrap_expect": 1,
        "node_name": "agent",
        # Made from the machine otherwise, which takes root to read.
        "disable_host_node_id": True,
        "data_dir": str(folder / "data"),
        "bind_addr": host,
        "client_addr": host,
        "ports": {"http": http, "server": server, "serf_lan": serf, "serf_wan": -1, "dns": -1},
        "session_ttl_min": "1s",
        # An election takes a second instead of ten.
        "performance": {"raft_multiplier": 1},
        "disable_update_check": True,
        "log_level": "WARN",
        **configuration,
    }
    file = folder.with_name(f"{folder.name}.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(config))
    url = f"http://{host}:{http}"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/v1/kv/any?consistent", timeout=1):
                return True
        except urllib.error.HTTPError as error:
            with error:
                # No such key, or none that may be read without a token: a leader has said so.
                return error.code in {403, 404}
        except OSError:
            return False

    command = [program("consul"), "agent", "-config-file", file]
    with _running(Server(url, folder, command, answers)) as agent:
        yield agent


@contextmanager
def prometheus(config: Path) -> Iterator[Server]:
    """A Prometheus with its data beside its configuration; ``url`` is ``http://HOST:PORT``."""
    folder = config.parent
    host = _own_address()
    port = free_port(host)
    url = f"http://{host}:{port}"
    command = [
        *(program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder}/data"),
        f"--web.listen-address={host}:{port}",
    ]

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=1):
                return True
        except OSError:
            return False

    with _running(Server(url, folder, command, answers)) as server:
        yield server


@contextmanager
def relay(server: Server, folder: Path) -> Iterator[Server]:
    """A wire to ``server`` with a URL of its own; frozen, it is a network that swallows all,
    killed, one that refuses."""
    host = _own_address()
    port = free_port(host)
    url = urlsplit(server.url)._replace(netloc=f"{host}:{port}").geturl()
    command = [
        *(sys.executable, "-m", "tests.cluster.servers"),
        *(host, str(port), server.host, str(server.port)),
    ]

    def answers() -> bool:
        try:
            socket.create_connection((host, port), 1).close()
        except OSError:
            return False
        return True

    with _running(Server(url, folder, command, answers)) as wire:
        yield wire


async def _be_wire(host: str, port: int, to_host: str, to_port: int) -> None:
    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(to_host, to_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

    async with await asyncio.start_server(connected, host, port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_be_wire(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
