"""Which ports are connected to, the failures of connecting, and which are the host's fault."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from krowlspider.fetch.errors import (
    ConnectFailed,
    ConnectionReset,
    ConnectRefused,
    FetchError,
    LocalExhausted,
    LoopClock,
    NetworkDown,
    PortForbidden,
    TLSFailed,
)
from krowlspider.fetch.guard import PORTS_MAX, AddressGuard
from krowlspider.fetch.memory import FetchMemory, Memory
from krowlspider.fetch.resolver import Resolver
from krowlspider.fetch.tcp import Routes, connect_failure
from tests.fetch.machine import routed
from tests.fetch.nameserver import closed_port, nameserver, no_sockets_left
from tests.fetch.web import answering, client, fetch, serve
from tests.support.tables import table

if TYPE_CHECKING:
    from krowlspider.fetch.client import Client

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
# The kernel has no route for TCP to it, and says so before anything is sent.
NOWHERE = "255.255.255.255"


def asking(port: int, routes: Routes | None = None) -> Resolver:
    return Resolver(
        overrides={},
        servers=[f"127.0.0.1:{port}"],
        cache_size=10,
        timeout=2,
        loop_clock=LoopClock(asyncio.get_running_loop()),
        routes=routes or routed(4),
    )


def class_of(
    error: OSError, address: str = "192.0.2.1", *versions: int, secure: bool = False
) -> type[FetchError]:
    """Return the class of a failure on a machine with these versions of IP; with IPv4 alone."""
    routes = routed(*(versions or (4,)))
    return type(connect_failure(error, address, "there", secure=secure, routes=routes))


def failing(number: int) -> OSError:
    """Return a system call that raises; OSError selects its subclass by the number."""
    return OSError(number, os.strerror(number))


@table(
    ("number", "expected"),
    [
        (errno.ECONNREFUSED, ConnectRefused),
        (errno.ECONNRESET, ConnectionReset),
        (errno.ECONNABORTED, ConnectionReset),
        (errno.EPIPE, ConnectionReset),
        (errno.ENETUNREACH, NetworkDown),
        (errno.ENETDOWN, NetworkDown),
        (errno.EADDRNOTAVAIL, NetworkDown),
        (errno.EHOSTUNREACH, ConnectFailed),
        (errno.EACCES, ConnectFailed),
        (errno.EINVAL, ConnectFailed),
        (errno.EMFILE, LocalExhausted),
        (errno.ENFILE, LocalExhausted),
        (errno.ENOBUFS, LocalExhausted),
        (errno.ENOMEM, LocalExhausted),
    ],
)
def test_connect_error_has_its_class(number: int, expected: type[FetchError]) -> None:
    assert class_of(failing(number)) is expected


@pytest.mark.parametrize(
    "error", [failing(errno.ECONNRESET), ConnectionResetError(), ssl.SSLError("no shared cipher")]
)
def test_failed_or_cut_handshake_is_a_failure_of_tls(error: OSError) -> None:
    assert class_of(error, secure=True) is TLSFailed


@pytest.mark.parametrize("number", [errno.ENETUNREACH, errno.ENETDOWN])
def test_error_from_a_router_is_not_our_network(number: int) -> None:
    """It comes by ICMP, from the owner of the address, or from a provider if nobody has it."""
    error = OSError(number, "Connect call failed ('192.0.2.1', 80)")
    assert class_of(error) is ConnectFailed


def test_asyncio_words_connect_errors_as_expected() -> None:
    async def main() -> None:
        with pytest.raises(ConnectionRefusedError) as caught:
            await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, "127.0.0.1", closed_port()
            )
        assert str(caught.value.strerror).startswith("Connect call failed")

    asyncio.run(main())


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_lack_of_sockets_is_local(scheme: str) -> None:
    async with serve(answering(OK)) as web, client() as made:
        with no_sockets_left(), pytest.raises(LocalExhausted):
            await fetch(made, f"{scheme}://127.0.0.1:{web.port}/")
        assert (await fetch(made, web.url)).status == 200


async def test_failure_of_the_first_address_is_raised() -> None:
    async with serve(answering(OK)) as web:
        port = web.port
    names = {"a.test": (60, ["127.0.0.1", NOWHERE]), "b.test": (60, [NOWHERE, "127.0.0.1"])}
    async with nameserver({**names}) as zone:
        guard = AddressGuard(["127.0.0.0/8", f"{NOWHERE}/32"])
        resolver = asking(zone.port)
        async with client(resolver=resolver, guard=guard) as made:
            with pytest.raises(ConnectRefused):
                await fetch(made, f"http://a.test:{port}/")
            with pytest.raises(NetworkDown):
                await fetch(made, f"http://b.test:{port}/")
        await resolver.close()


async def test_second_address_is_tried_when_the_first_fails() -> None:
    async with (
        serve(answering(OK)) as web,
        nameserver({"a.test": (60, [NOWHERE, "127.0.0.1"])}) as zone,
    ):
        resolver = asking(zone.port)
        guard = AddressGuard(["127.0.0.0/8", f"{NOWHERE}/32"])
        async with client(resolver=resolver, guard=guard) as made:
            exchange = await fetch(made, f"http://a.test:{web.port}/")
        await resolver.close()
    assert exchange.peer.address == "127.0.0.1"


async def ask(made: Client, url: str, *, linked: bool) -> int:
    memory = FetchMemory(Memory())
    exchange = await made.fetch(
        url, "GET", (), b"", timeout=5, max_size=100, linked=linked, memory=memory
    )
    return exchange.status


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_port_of_another_protocol_is_not_dialled(scheme: str) -> None:
    async with client() as made:
        for port in (0, 22, 6667):
            with pytest.raises(PortForbidden, match=f"port {port} is of another protocol"):
                await ask(made, f"{scheme}://a.test:{port}/", linked=False)


async def test_links_lead_to_eight_ports_of_an_address() -> None:
    async with AsyncExitStack() as stack, client() as made:
        webs = [await stack.enter_async_context(serve(answering(OK))) for _ in range(PORTS_MAX + 2)]
        for number, web in enumerate(webs[:PORTS_MAX]):
            assert await ask(made, f"http://n{number}.test:{web.port}/", linked=True) == 200
        for number, web in enumerate(webs[PORTS_MAX:]):
            with pytest.raises(PortForbidden, match=r"8 ports of 127\.0\.0\.1"):
                await ask(made, f"http://m{number}.test:{web.port}/", linked=True)
            assert web.connections == 0
            # As a person's seeds are.
            assert await ask(made, f"http://m{number}.test:{web.port}/", linked=False) == 200
        # One that was asked before.
        assert await ask(made, f"http://other.test:{webs[0].port}/", linked=True) == 200
