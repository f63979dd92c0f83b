"""IPv4 and IPv6 between two machines: hosts of which one address is dead, and machines that have
one of both.

The machines are network namespaces. Root can make them: as root nothing is skipped.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from krowlspider.fetch.errors import ConnectFailed, LoopClock, NetworkDown
from krowlspider.fetch.guard import AddressGuard
from krowlspider.fetch.resolver import Resolver
from krowlspider.fetch.tcp import Routes
from tests.fetch.nameserver import AAAA, A, nameserver_in_thread
from tests.fetch.web import client, fetch
from tests.support.crawling import Crawl, write_seeds
from tests.support.crawls import failures
from tests.support.machines import SECOND, SECOND_V6, two_machines

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from pathlib import Path

    from krowlspider.fetch.client import Client
    from tests.fetch.nameserver import Zone
    from tests.support.machines import Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

# Packets to it are dropped by the second machine, to which all routes lead.
SILENT = "203.0.113.9"
# Hosts that each have an IPv4 address alone: more than show an outage.
FOUR = [f"{name}.four{number}.test" for number, name in enumerate("abcdef")]
NAMES: dict[str, tuple[int, list[str]] | int | None] = {
    "silent.test": (300, [SILENT, SECOND_V6]),
    "dead.test": (300, [SECOND, SECOND_V6]),
    "both.test": (300, [SECOND, SECOND_V6]),
    **{name: (300, [SECOND]) for name in FOUR},
}
NETWORKS = [f"{SECOND}/32", f"{SILENT}/32", f"{SECOND_V6}/128"]


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>a page</title>")

    def log_message(self, *_: object) -> None:
        pass


class _Web(ThreadingHTTPServer):
    """A web over IPv6 alone."""

    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()


@contextmanager
def served() -> Iterator[int]:
    """Return the port of a web on the machine of this thread."""
    with _Web((SECOND_V6, 0), _Page) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        try:
            yield int(web.server_address[1])
        finally:
            web.shutdown()
            thread.join()


@pytest.fixture
def machines() -> Iterator[tuple[Machine, Machine]]:
    try:
        opened = two_machines()
        first, second = opened.__enter__()
    except OSError as error:
        if os.geteuid() == 0:
            raise
        pytest.skip(f"this user may not make network namespaces: {error}")
    try:
        first.ip("route", "add", "default", "via", SECOND)
        first.ip("-6", "route", "add", "default", "via", SECOND_V6)
        second.ip("route", "add", "blackhole", SILENT)
        yield first, second
    finally:
        opened.__exit__(None, None, None)


@pytest.fixture
def far(machines: tuple[Machine, Machine]) -> Iterator[tuple[Zone, int]]:
    """The name server, and the port of the web, on the second machine."""
    first, second = machines
    with (
        second.has(nameserver_in_thread(NAMES, SECOND_V6)) as zone,
        second.has(served()) as port,
    ):
        # Packets may be lost until the machines have found each other.
        with first:
            socket.create_connection((SECOND_V6, port)).close()
        yield zone, port


@asynccontextmanager
async def fetching(zone: Zone) -> AsyncIterator[Client]:
    resolver = Resolver(
        overrides={},
        servers=[f"[{SECOND_V6}]:{zone.port}"],
        cache_size=10,
        timeout=5,
        loop_clock=LoopClock(asyncio.get_running_loop()),
        routes=Routes(),
    )
    guard = AddressGuard(NETWORKS)
    async with client(resolver=resolver, guard=guard, connect_timeout=60) as made:
        yield made
    await resolver.close()


def on(machine: Machine, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await main()

    with machine:
        uvloop.run(bounded())


def questions(zone: Zone) -> list[int]:
    return [kind for _, kind in zone.asked]


@pytest.mark.parametrize("name", ["silent.test", "dead.test"])
def test_seven_connections_to_a_host_with_a_bad_ipv4_address(
    machines: tuple[Machine, Machine], far: tuple[Zone, int], name: str
) -> None:
    zone, port = far

    async def main() -> None:
        async with fetching(zone) as made:
            for _ in range(7):
                exchange = await fetch(made, f"http://{name}:{port}/")
                assert (exchange.status, exchange.peer.address) == (200, SECOND_V6)
        assert questions(zone) == [A, AAAA]

    on(machines[0], main)


def test_routes_of_a_machine_are_found(machines: tuple[Machine, Machine]) -> None:
    first, _ = machines

    def found() -> tuple[bool, bool]:
        with first:
            routes = Routes()
            return routes.has(4), routes.has(6)

    assert found() == (True, True)
    first.ip("route", "del", "default")
    assert found() == (False, True)
    first.ip("-6", "route", "del", "default")
    assert found() == (False, False)
    # An interface has an address for its own link, from which nothing else is reached.
    first.ip("-6", "address", "flush", "dev", "cable", "scope", "global")
    first.ip("-6", "route", "add", "default", "dev", "cable")
    assert found() == (False, False)


def test_a_machine_without_network_knows_it(
    machines: tuple[Machine, Machine], far: tuple[Zone, int]
) -> None:
    first, _ = machines
    zone, port = far

    async def main() -> None:
        async with fetching(zone) as made:
            assert (await fetch(made, f"http://both.test:{port}/")).status == 200
            for family in ("-4", "-6"):
                first.ip(family, "address", "flush", "dev", "cable", "scope", "global")
            first.ip("link", "set", "cable", "down")
            with pytest.raises(NetworkDown):
                await fetch(made, f"http://both.test:{port}/")

    on(first, main)


def test_a_machine_with_ipv6_alone_crawls_what_has_ipv6(
    machines: tuple[Machine, Machine], far: tuple[Zone, int], tmp_path: Path
) -> None:
    """Hosts with IPv4 alone fail one by one: the network is not down."""
    first, _ = machines
    zone, port = far
    first.ip("-4", "address", "flush", "dev", "cable")

    async def main() -> None:
        async with fetching(zone) as made:
            with pytest.raises(ConnectFailed, match="this machine has no route for IPv4"):
                await fetch(made, f"http://{FOUR[0]}:{port}/")

    on(first, main)
    zone.asked.clear()
    seeds = [f"http://{name}:{port}/" for name in ("both.test", *FOUR)]
    with first:
        crawl = Crawl(
            tmp_path / "job",
            arguments={"seeds": write_seeds(tmp_path / "seeds.txt", seeds)},
            settings={
                "KROWL_DNS_SERVERS": f"[{SECOND_V6}]:{zone.port}",
                "KROWL_RESOLVE": "{}",
                "KROWL_ALLOW_ADDRESSES": ",".join(NETWORKS),
                "RETRY_TIMES": 0,
            },
            # A process that starts warm is of another machine.
            cold=True,
        ).run()
    assert [item["url"] for item in crawl.items] == [f"http://both.test:{port}/"]
    assert set(failures(crawl)) == {"connect_failed"}
    assert "seem to be down" not in crawl.log
    assert crawl.stats.get("krowl/politeness/outages_count", 0) == 0
    assert [kind for name, kind in zone.asked if name == "both.test"] == [AAAA]
