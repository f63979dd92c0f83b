"""What a client does through proxies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.fetch.errors import (
    AddressForbidden,
    ConnectionLost,
    ConnectTimeout,
    Exchange,
    FetchError,
    PortForbidden,
    ProxyClosed,
    ProxyDenied,
    ProxyFailed,
    ProxyInvalid,
    ProxyRefused,
    TargetUnreached,
)
from krowlspider.fetch.guard import PORTS_MAX, AddressGuard
from krowlspider.fetch.http.head import Proxy
from krowlspider.fetch.memory import FetchMemory, Memory
from krowlspider.fetch.proxy.protocols import parse_proxy
from tests.fetch.conftest import bounded
from tests.fetch.nameserver import silent
from tests.fetch.web import Peer, answering, client, closing, serve

if TYPE_CHECKING:
    from krowlspider.fetch.client import Client

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
LARGE = b"HTTP/1.1 407 No\r\nContent-Length: 99999\r\n\r\n" + bytes(99999)


async def through(
    made: Client, proxy: str, url: str = "http://a.example/", *, linked: bool = False
) -> Exchange:
    return await made.fetch(
        url,
        "GET",
        (),
        b"",
        timeout=5,
        max_size=1000,
        proxy=parse_proxy(proxy),
        linked=linked,
        memory=FetchMemory(Memory()),
        # The address is unknown, so no limit of addresses is asked.
        admit=lambda _: False,
    )


async def test_connections_of_proxies_and_targets_do_not_mix() -> None:
    script = answering(OK, OK, OK)
    async with serve(script) as one, serve(script) as two, client() as made:
        for proxy in (one.url, two.url, one.url, one.url.replace("//", "//u:p@")):
            exchange = await through(made, proxy, "http://a.example:81/x")
            assert exchange.request_bytes.startswith(b"GET /x HTTP/1.1\r\nHost: a.example:81\r\n")
            assert b"Authorization" not in exchange.request_bytes
        await through(made, one.url)
    lines = [request.partition(b"\r\n")[0] for request in one.requests]
    assert sorted(lines) == [
        b"GET http://a.example/ HTTP/1.1",
        *[b"GET http://a.example:81/x HTTP/1.1"] * 3,
    ]
    assert sum(b"\r\nProxy-Authorization: Basic dTpw\r\n" in each for each in one.requests) == 1
    # The third request shares the connection of the first.
    assert (one.connections, two.connections) == (3, 1)


class _TwoAddresses(asyncio.SelectorEventLoop):
    """A loop on which every name has two addresses."""

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        found = await super().getaddrinfo("127.0.0.1", port, **options)
        return found + await super().getaddrinfo("::1", port, **options)


def test_a_proxy_with_a_silent_address_is_reached_at_another() -> None:
    async def main() -> None:
        async with serve(answering(OK), host="::1") as web, client(connect_timeout=60) as made:
            with silent(web.port):
                exchange = await through(made, f"http://proxy.example:{web.port}")
            assert exchange.status == 200

    with asyncio.Runner(loop_factory=_TwoAddresses) as runner:
        runner.run(bounded(main()))


async def test_forbidden_targets_are_not_asked_of_a_proxy() -> None:
    """The proxy itself is at a forbidden address."""
    async with serve(answering(OK)) as web, client(guard=AddressGuard([])) as made:
        for host in ("10.0.0.1", "[::1]", "localhost", "a.test"):
            with pytest.raises(AddressForbidden, match="not public"):
                await through(made, web.url, f"http://{host}/")
        with pytest.raises(PortForbidden):
            await through(made, web.url, "http://a.example:22/")
        assert web.connections == 0
        assert (await through(made, web.url)).body == b"hello"


async def test_links_lead_to_few_ports_through_a_proxy() -> None:
    async with serve(closing(OK)) as web, client() as made:
        for port in range(8000, 8000 + PORTS_MAX):
            await through(made, web.url, f"http://a.example:{port}/", linked=True)
        with pytest.raises(PortForbidden, match=r"ports of a\.example"):
            await through(made, web.url, "http://a.example:9000/", linked=True)


REFUSE = b"HTTP/1.1 504 Late\r\n\r\n"


@pytest.mark.parametrize(
    ("scheme", "answer", "failure"),
    [
        ("http", REFUSE, TargetUnreached),
        ("http", b"HTTP/1.1 407 No\r\n\r\n", ProxyDenied),
        ("http", b"HTTP/1.1 402 Pay\r\n\r\n", ProxyFailed),
        ("http", b"HTTP/1.1 429 Slow\r\n\r\n", ProxyFailed),
        ("http", b"HTTP/1.1 403 No\r\n\r\n", ProxyRefused),
        ("http", b"SSH-2.0-x\r\n\r\n", ProxyFailed),
        ("http", b"", ProxyClosed),
        ("http", b"HTTP/1.1 200 OK\r\nX: " + bytes(99999), ProxyFailed),
        ("socks5", REFUSE, ProxyFailed),
        ("socks5", b"\x05\xff", ProxyDenied),
        ("socks5", b"\x05\x00", ProxyClosed),
        ("socks5", b"\x05\x02", ProxyFailed),
        ("socks5", b"\x05\x00\x05\x05\x00\x01" + bytes(6), TargetUnreached),
        ("socks5", b"\x05\x00\x05\x01\x00\x01", TargetUnreached),
    ],
)
async def test_tunnels_fail_with_their_reason(
    scheme: str, answer: bytes, failure: type[FetchError]
) -> None:
    async def script(peer: Peer) -> None:
        await peer.some()
        await peer.send(answer)

    async with serve(script) as web, client() as made:
        url = web.url.replace("http", scheme)
        with pytest.raises(FetchError, match=url.removesuffix("/")) as caught:
            await through(made, url, "https://a.example/")
    assert type(caught.value) is failure
    assert caught.value.exchange is None


async def test_an_answer_in_pieces_is_no_failure_of_the_host() -> None:
    """What is left of it is not taken for the host's TLS."""

    async def script(peer: Peer) -> None:
        await peer.some()
        await peer.send(b"HTTP/1.1 200 OK\r\n")
        await asyncio.sleep(0.05)
        await peer.send(b"Via: 1.1 gate\r\n\r\n")
        await peer.gone()

    async with serve(script) as web, client(connect_timeout=0.5) as made:
        with pytest.raises(ConnectTimeout, match="through proxy"):
            await through(made, web.url, "https://a.example/")


async def test_denial_is_no_answer_however_large() -> None:
    async with serve(answering(LARGE)) as web, client() as made:
        with pytest.raises(ProxyDenied, match="demands credentials") as caught:
            await through(made, web.url)
    assert caught.value.exchange is None


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        (b"Proxy-Status: gate; error=destination_unavailable", "destination_unavailable"),
        (b"proxy-status: a, b;received-status=200; error=dns_timeout; details=x", "dns_timeout"),
        (b"X-Squid-Error: ERR_CONNECT_FAIL 111", "ERR_CONNECT_FAIL 111"),
        (b"Proxy-Status: gate; received-status=503", ""),
        (b"Via: 1.1 gate", ""),
    ],
)
async def test_a_proxys_own_error_is_no_answer_of_the_host(fields: bytes, found: str) -> None:
    own = b"HTTP/1.1 503 No\r\n%b\r\nContent-Length: 0\r\n\r\n" % fields

    async with serve(answering(own)) as web, client() as made:
        if found:
            with pytest.raises(TargetUnreached, match=found):
                await through(made, web.url)
        else:
            assert (await through(made, web.url)).status == 503


async def test_silent_proxy_times_out_and_hang_up_ends_it() -> None:
    asked = asyncio.Event()

    async def silent(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.gone()

    async with serve(silent) as web, client(connect_timeout=0.2) as made:
        with pytest.raises(ConnectTimeout, match="through proxy"):
            await through(made, web.url, "https://a.example/")
        await web.gone.wait()
    asked.clear()
    async with serve(silent) as web, client() as made:
        fetching = asyncio.ensure_future(through(made, web.url))
        await asked.wait()
        made.hang_up()
        with pytest.raises(ConnectionLost):
            await fetching


def test_urls_of_proxies() -> None:
    basic = b"Basic dTpw"
    for url, proxy in {
        "http://h:1": Proxy("http", "h", 1),
        "h:1/": Proxy("http", "h", 1),
        "//h:1": Proxy("http", "h", 1),
        "http://u:p@[::1]:1": Proxy("http", "::1", 1, basic),
        "socks5h://u:p@h:1": Proxy("socks5h", "h", 1, basic),
    }.items():
        assert parse_proxy(url) == proxy
    assert Proxy("http", "::1", 1, basic).name == "http://[::1]:1"
    assert parse_proxy("http://h:1", b"Bearer x").authorization == b"Bearer x"
    for url in (
        "http://h:0",
        "http://h:99999",
        "http://:1",
        "http://[h:1",
        "http://a..b:1",
        "h",
        "file:///h",
    ):
        with pytest.raises(ProxyInvalid, match="proxy '"):
            parse_proxy(url)
    for url in (
        "ftp://user:secret@h:1",
        "http://user:secret/x@h:1",
        "http://us[er:secret]x@h:1",
        "http://user:secr\u2100et@h:1",
    ):
        with pytest.raises(ProxyInvalid, match="://h:1'") as caught:
            parse_proxy(url)
        assert "secr" not in str(caught.value)
        assert caught.value.__cause__ is None
    for header in (b"Basic x\r\nHost: y", b"Basic !"):
        with pytest.raises(ProxyInvalid, match="uthorization"):
            parse_proxy("socks5://h:1", header)
