"""The network that a test can part: what comes through, and for whom."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.cluster.partition import Network
from tests.cluster.servers import free_port, redis_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.servers import Server

# Connects from a given port at the first line of its input, and sends a PING at each further one.
ASKER = """
import socket, sys
local, host, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
sys.stdin.readline()
with socket.socket() as wire:
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    wire.bind(("127.0.0.1", local))
    wire.connect((host, port))
    wire.settimeout(0.5)
    print("connected", flush=True)
    for _ in sys.stdin:
        try:
            wire.sendall(b"PING\\r\\n")
            print("answered" if wire.recv(100) else "closed", flush=True)
        except TimeoutError:
            print("silent", flush=True)
        except OSError:
            print("closed", flush=True)
"""


class Asker:
    """A process with one connection, from ``port`` to ``url``."""

    def __init__(self, port: int, url: str):
        at = urlsplit(url)
        self.process = subprocess.Popen(
            [sys.executable, "-c", ASKER, str(port), str(at.hostname), str(at.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def connect(self) -> Asker:
        assert self._said() == "connected"
        return self

    def ask(self) -> str:
        """What comes of it: answered, silent (for half a second) or closed."""
        return self._said()

    def _said(self) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with redis_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture
def asker() -> Iterator[Callable[[int, str], Asker]]:
    made: list[Asker] = []

    def make(port: int, url: str) -> Asker:
        made.append(Asker(port, url))
        return made[-1]

    yield make
    for each in made:
        each.end()


def test_shared_wire_knows_whose_a_connection_is(
    server: Server, network: Network, asker: Callable[[int, str], Asker]
) -> None:
    """Linux gives one port to connections of several processes, each to another server."""
    port = free_port("127.0.0.1")
    a, b = asker(port, server.url), asker(port, network.wire(server))
    network.processes.update({a.process.pid: "a", b.process.pid: "b"})
    a.connect()
    b.connect()
    with network.parted("a"):
        assert b.ask() == "answered"
    with network.parted("b"):
        assert b.ask() == "silent"


def test_wire_of_one_node_is_cut_for_it_alone(
    server: Server, network: Network, asker: Callable[[int, str], Asker]
) -> None:
    a = asker(0, network.wire(server, asker="a")).connect()
    b = asker(0, network.wire(server, asker="b")).connect()
    assert (a.ask(), b.ask()) == ("answered", "answered")
    with network.parted("b"):
        assert (a.ask(), b.ask()) == ("answered", "silent")
        # One that comes meanwhile too.
        assert asker(0, network.wire(server, asker="b")).connect().ask() == "silent"


def test_node_beside_a_server_is_on_its_side(
    server: Server, network: Network, asker: Callable[[int, str], Asker]
) -> None:
    url = network.wire(server, beside="b")
    a, b = asker(0, url), asker(0, url)
    network.processes.update({a.process.pid: "a", b.process.pid: "b"})
    a.connect()
    b.connect()
    with network.parted("b"):
        assert (a.ask(), b.ask()) == ("silent", "answered")


def test_unknown_process_gets_nothing_through(
    server: Server, network: Network, asker: Callable[[int, str], Asker]
) -> None:
    assert asker(0, network.wire(server)).connect().ask() == "closed"
