"""Which address of a name is connected to, and which questions of the DNS that takes."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trustme

from krowlspider.fetch.errors import (
    AddressBusy,
    AddressForbidden,
    ConnectFailed,
    ConnectRefused,
    LoopClock,
)
from krowlspider.fetch.guard import PORTS_MAX, AddressGuard
from krowlspider.fetch.memory import FetchMemory, Memory
from krowlspider.fetch.resolver import Resolver
from tests.fetch.machine import routed
from tests.fetch.nameserver import AAAA, A, nameserver, silent
from tests.fetch.web import answering, client, closing, fetch, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Any

    from krowlspider.fetch.client import Client
    from tests.fetch.nameserver import Zone

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
BOTH = {"both.test": (60, ["127.0.0.1", "::1"])}
LAST = OK.replace(b"Content", b"Connection: close\r\nContent")
URL = "http://both.test:{}/"
# The kernel has no route for TCP to it.
NOWHERE = "255.255.255.255"


@pytest.fixture
def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("both.test").configure_cert(context)
    return context


@asynccontextmanager
async def dual_stack(
    *versions: int, names: dict[str, Any] = BOTH, **changes: Any
) -> AsyncIterator[tuple[Client, Resolver, Zone]]:
    """A client on a machine with these versions of IP, which asks ``names``."""
    async with nameserver({**names}) as zone:
        resolver = Resolver(
            overrides={},
            servers=[f"127.0.0.1:{zone.port}"],
            cache_size=10,
            timeout=2,
            loop_clock=LoopClock(asyncio.get_running_loop()),
            routes=routed(*versions),
        )
        try:
            async with client(resolver=resolver, **changes) as made:
                yield made, resolver, zone
        finally:
            await resolver.close()


def questions(zone: Zone) -> list[int]:
    return [kind for _, kind in zone.asked]


async def admitted(
    made: Client, url: str, admit: Callable[[str], bool], *, linked: bool = False
) -> str:
    """Return the address at which a request was admitted."""
    exchange = await made.fetch(
        url,
        *("GET", (), b""),
        timeout=5,
        max_size=100,
        admit=admit,
        linked=linked,
        memory=FetchMemory(Memory()),
    )
    return exchange.peer.address


@pytest.mark.parametrize("secure", [False, True])
async def test_a_host_with_dead_ipv4_is_fetched_over_ipv6(
    tls: ssl.SSLContext, *, secure: bool
) -> None:
    """Its IPv6 address is asked for once, and tried first from then on."""
    async with (
        serve(closing(LAST), tls if secure else None, "::1") as web,
        dual_stack(4, 6) as (made, resolver, zone),
    ):
        url = URL.format(web.port).replace("http:", "https:" if secure else "http:")
        assert (await fetch(made, url)).peer.address == "::1"
        assert questions(zone) == [A, AAAA]
        assert resolver.known("both.test") == ["::1", "127.0.0.1"]
        async with serve(closing(LAST), port=web.port) as other:
            assert (await fetch(made, url)).peer.address == "::1"
            assert other.connections == 0
        assert questions(zone) == [A, AAAA]


@pytest.mark.parametrize("secure", [False, True])
async def test_a_host_with_silent_ipv4_is_fetched_over_ipv6(
    tls: ssl.SSLContext, *, secure: bool
) -> None:
    async with (
        serve(closing(LAST), tls if secure else None, "::1") as web,
        dual_stack(4, 6, connect_timeout=60) as (made, resolver, zone),
    ):
        url = URL.format(web.port).replace("http:", "https:" if secure else "http:")
        with silent(web.port):
            for _ in range(7):
                assert (await fetch(made, url)).peer.address == "::1"
        assert questions(zone) == [A, AAAA]
        assert resolver.reached("both.test") == "::1"


async def test_an_address_that_falls_silent_is_left_for_the_other() -> None:
    async with dual_stack(4, 6, connect_timeout=60) as (made, resolver, _):
        async with serve(closing(LAST)) as web:
            url = URL.format(web.port)
            assert (await fetch(made, url)).peer.address == "127.0.0.1"
        async with serve(closing(LAST), None, "::1", web.port):
            with silent(web.port):
                assert (await fetch(made, url)).peer.address == "::1"
        assert resolver.known("both.test") == ["::1", "127.0.0.1"]


async def test_a_host_of_the_other_family_alone_is_no_outage() -> None:
    names = {"four.test": (60, [NOWHERE])}
    guard = AddressGuard([f"{NOWHERE}/32"])
    async with dual_stack(6, names=names, guard=guard) as (made, _, _zone):
        with pytest.raises(ConnectFailed, match="this machine has no route for IPv4"):
            await fetch(made, "http://four.test:81/")


async def test_ipv6_is_asked_for_where_no_ipv4_address_may_be_used() -> None:
    names = {"both.test": (60, ["10.0.0.1", "::1"])}
    for versions, asked in ((4, 6), [A, AAAA]), ((4,), [A]):
        async with (
            serve(answering(OK), host="::1") as web,
            dual_stack(*versions, names=names) as (made, _, zone),
        ):
            url = URL.format(web.port)
            if 6 in versions:
                assert (await fetch(made, url)).peer.address == "::1"
            else:
                with pytest.raises(AddressForbidden, match=r"both\.test is at 10\.0\.0\.1"):
                    await fetch(made, url)
            assert questions(zone) == asked


async def test_the_guard_judges_each_address_that_is_tried() -> None:
    guard = AddressGuard(["127.0.0.0/8"])
    async with (
        serve(answering(OK), host="::1") as web,
        dual_stack(4, 6, guard=guard) as (made, _, zone),
    ):
        with pytest.raises(ConnectRefused):
            await fetch(made, URL.format(web.port))
        assert (questions(zone), web.connections) == ([A, AAAA], 0)


async def test_the_share_is_that_of_the_address_which_is_used() -> None:
    asked: list[str] = []

    def admit(address: str) -> bool:
        asked.append(address)
        return address != busy

    for busy, expected in ("", ["127.0.0.1", "::1"]), ("::1", ["127.0.0.1", "::1"]):
        async with serve(closing(LAST), host="::1") as web, dual_stack(4, 6) as (made, resolver, _):
            asked.clear()
            if busy:
                with pytest.raises(AddressBusy, match="::1"):
                    await admitted(made, URL.format(web.port), admit)
                await web.gone.wait()
                assert web.requests == []
            else:
                assert await admitted(made, URL.format(web.port), admit) == "::1"
            assert asked == expected
            # The next connection asks for it alone.
            assert resolver.known("both.test") == ["::1", "127.0.0.1"]


async def test_links_lead_to_eight_ports_of_the_other_address_too() -> None:
    names = {f"n{number}.test": (60, ["::1"]) for number in range(PORTS_MAX)}
    async with (
        serve(answering(OK), host="::1") as web,
        dual_stack(4, 6, names={**names, **BOTH}) as (made, _, _zone),
    ):
        for number in range(PORTS_MAX):
            with pytest.raises(ConnectRefused):
                await admitted(made, f"http://n{number}.test:{50_001 + number}/", bool, linked=True)
        with pytest.raises(ConnectRefused, match=r"127\.0\.0\.1"):
            await admitted(made, URL.format(web.port), bool, linked=True)
        assert web.connections == 0


async def test_closing_while_attempts_are_under_way_leaves_no_socket() -> None:
    async with dual_stack(4, 6, connect_timeout=60) as (made, _, zone):
        async with serve(answering(OK)) as web:
            port = web.port
        with silent(port):
            zone.heard.clear()
            asking = asyncio.ensure_future(fetch(made, URL.format(port)))
            while AAAA not in questions(zone):
                zone.heard.clear()
                await zone.heard.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
