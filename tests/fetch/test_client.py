from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from krowlspider.fetch.errors import (
    AddressForbidden,
    ConnectionLost,
    ConnectionReset,
    ConnectRefused,
    Headers,
    StopFetch,
)
from krowlspider.fetch.guard import AddressGuard
from tests.fetch.web import Peer, answering, client, closing, fetch, is_reused, serve

if TYPE_CHECKING:
    from krowlspider.fetch.http.head import Target

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\nX-a: \xe9\r\nx-A: 2\r\n\r\n"
    b"3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: y\r\n\r\n"
)
UNTIL_CLOSE = b"HTTP/1.0 200 OK\r\nServer: old\r\n\r\nhello"
REPEAT = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@pytest.mark.parametrize("response", [OK, CHUNKED, UNTIL_CLOSE])
async def test_an_exchange_is_kept_byte_for_byte(response: bytes) -> None:
    async with serve(closing(response)) as web, client() as made:
        url = web.url + "x?y"
        exchange = await fetch(made, url, headers=[(b"User-Agent", b"k")])
    assert exchange.response_bytes == response
    assert exchange.body == b"hello"
    assert [exchange.request_bytes] == web.requests
    assert exchange.request_bytes.startswith(b"GET /x?y HTTP/1.1\r\nHost: 127.0.0.1:")
    assert (exchange.url, exchange.status) == (url, 200)
    assert (exchange.peer.address, exchange.truncated, exchange.peer.tls) == ("127.0.0.1", "", None)
    assert exchange.times.dialled is not None
    assert exchange.times.dialled.connect > exchange.times.dialled.tls == 0
    assert exchange.version == ("1.0" if response is UNTIL_CLOSE else "1.1")
    assert 0 < exchange.times.latency <= exchange.times.duration < 5
    assert exchange.response_bytes[: exchange.head_length].endswith(b"\r\n\r\n")


async def test_connection_is_kept_for_the_next_fetch() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    async with serve(answering(OK, CHUNKED, head, OK)) as web, client() as made:
        first = await fetch(made, web.url)
        second = await fetch(made, web.url)
        third = await fetch(made, web.url, "HEAD")
        fourth = await fetch(made, web.url)
        assert web.connections == 1
    assert [is_reused(e) for e in (first, second, third, fourth)] == [False, True, True, True]
    assert [e.body for e in (first, second, third, fourth)] == [b"hello", b"hello", b"", b"hello"]


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    ],
)
async def test_connection_out_of_step_is_closed(response: bytes) -> None:
    async with serve(answering(response)) as web, client() as made:
        exchange = await fetch(made, web.url)
        assert exchange.body == b"hello"
        await web.gone.wait()
        assert not is_reused(await fetch(made, web.url))


async def test_dead_kept_connection_is_not_replaced_at_once() -> None:
    """Its server may have read the request; a second one at once would ignore the delay."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        # The next request on this connection is read, and answered with an end.
        await peer.request()

    async with serve(script) as web, client() as made:
        await fetch(made, web.url)
        with pytest.raises(ConnectionLost):
            await fetch(made, web.url)
        assert (web.connections, len(web.requests)) == (1, 2)
        assert not is_reused(await fetch(made, web.url))


async def test_request_is_not_repeated_when_a_new_connection_dies() -> None:
    async with serve(closing(b"")) as web, client() as made:
        with pytest.raises(ConnectionLost) as caught:
            await fetch(made, web.url)
        assert web.connections == 1
        assert caught.value.exchange is None


CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"
CUT_CHUNK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello"


@pytest.mark.parametrize(
    ("response", "reset"), [(CUT, False), (CUT, True), (CUT_CHUNK, False), (UNTIL_CLOSE, True)]
)
async def test_body_cut_short_is_a_failure_with_its_bytes(response: bytes, reset: bool) -> None:
    seen = asyncio.Event()

    class Watcher:
        def headers(self, status: int, headers: Headers) -> None: ...

        def data(self, chunk: bytes) -> None:
            seen.set()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(response)
        await seen.wait()
        peer.reset() if reset else peer.close()

    async with serve(script) as web, client() as made:
        with pytest.raises(ConnectionLost) as caught:
            await fetch(made, web.url, observer=Watcher())
    assert type(caught.value) is (ConnectionReset if reset else ConnectionLost)
    partial = caught.value.exchange
    assert partial is not None
    assert (partial.truncated, partial.response_bytes) == ("disconnect", response)
    assert partial.body == b"hello"


async def test_a_posted_body_is_sent_whole() -> None:
    body = bytes(range(256)) * 4000
    async with serve(answering(OK)) as web, client() as made:
        exchange = await fetch(made, web.url, "POST", body=body)
        assert exchange.request_bytes == web.requests[0]
        assert web.requests[0].endswith(b"Content-Length: 1024000\r\n\r\n" + body)


class Stopper:
    def __init__(self, at: str) -> None:
        self.at = at
        self.status = 0
        self.body = b""

    def headers(self, status: int, headers: Headers) -> None:
        self.status = status
        if self.at == "headers":
            raise StopFetch

    def data(self, chunk: bytes) -> None:
        self.body += chunk
        if self.at == "data":
            raise StopFetch
        if self.at == "mistake":
            raise ZeroDivisionError


@pytest.mark.parametrize("at", ["headers", "data"])
async def test_observer_may_end_the_fetch_and_keep_its_bytes(at: str) -> None:
    stopper = Stopper(at)
    response = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhello"
    async with serve(answering(response)) as web, client() as made:
        exchange = await fetch(made, web.url, observer=stopper)
        await web.gone.wait()
    assert (exchange.truncated, exchange.status, stopper.status) == ("length", 200, 200)
    assert response.startswith(exchange.response_bytes)
    assert exchange.body == stopper.body


async def test_error_of_an_observer_reaches_the_caller() -> None:
    async with serve(answering(OK)) as web, client() as made:
        with pytest.raises(ZeroDivisionError):
            await fetch(made, web.url, observer=Stopper("mistake"))
        await web.gone.wait()


async def test_cancelling_a_fetch_closes_its_connection() -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.gone()

    async with serve(script) as web, client(first_byte_timeout=1000) as made:
        fetching = asyncio.ensure_future(fetch(made, web.url, timeout=1000))
        await asked.wait()
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        await web.gone.wait()


async def test_hang_up_fails_exchanges_in_flight_and_none_later() -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        if not asked.is_set():
            asked.set()
            await peer.gone()
        await peer.send(OK)

    async with serve(script) as web, client() as made:
        under_way = asyncio.ensure_future(fetch(made, web.url))
        await asked.wait()
        connecting = asyncio.ensure_future(fetch(made, web.url))
        await asyncio.sleep(0)
        made.hang_up()
        for fetching in (under_way, connecting):
            with pytest.raises(ConnectionLost):
                await fetching
        assert (await fetch(made, web.url)).status == 200


async def test_fetches_side_by_side_do_not_mix() -> None:
    async def script(peer: Peer) -> None:
        while True:
            path = (await peer.request()).split()[1]
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(path) + path)

    async with serve(script) as web, client() as made:
        urls = [f"{web.url}{i}" for i in range(50)]
        exchanges = await asyncio.gather(*(fetch(made, url) for url in urls))
    assert [e.body.decode() for e in exchanges] == [f"/{i}" for i in range(50)]


async def test_name_is_sent_as_host_to_its_address() -> None:
    async with serve(answering(OK)) as web, client() as made:
        exchange = await fetch(made, f"http://a.test:{web.port}/")
    assert exchange.peer.address == "127.0.0.1"
    assert b"\r\nHost: a.test:%d\r\n" % web.port in exchange.request_bytes


@pytest.mark.parametrize("host", ["127.0.0.1", "a.test", "localhost", "[::1]", "[::ffff:7f00:1]"])
async def test_guard_forbids_addresses_in_any_spelling(host: str) -> None:
    async with serve(answering(OK)) as web, client(guard=AddressGuard([])) as made:
        with pytest.raises(AddressForbidden):
            await fetch(made, f"http://{host}:{web.port}/")
        assert web.connections == 0


async def test_a_request_is_signed_when_its_connection_is_there() -> None:
    """Each by itself, and none that cannot be sent; the exchange has what was sent."""
    signed: list[tuple[str, str]] = []

    def sign(target: Target, method: str) -> bytes:
        signed.append((method, target.authority.decode()))
        return b"Signature: %d\r\n" % len(signed)

    async with serve(answering(OK, OK)) as web, client() as made:
        url, gone = web.url, f"http://127.0.0.1:{free_port()}/"
        first = await fetch(made, url, "POST", [(b"X", b"y")], b"body", sign=sign)
        second = await fetch(made, url, sign=sign)
        assert is_reused(second)
        with pytest.raises(ConnectRefused):
            await fetch(made, gone, sign=sign)
    authority = url.split("/")[2]
    assert signed == [("POST", authority), ("GET", authority)]
    assert [first.request_bytes, second.request_bytes] == web.requests
    assert first.request_bytes.endswith(
        b"\r\nX: y\r\nContent-Length: 4\r\nSignature: 1\r\n\r\nbody"
    )
    assert second.request_bytes.endswith(b"\r\nSignature: 2\r\n\r\n")


async def test_invalid_request_is_refused_before_connecting() -> None:
    async with serve(answering(OK)) as web, client() as made:
        with pytest.raises(ValueError, match="control"):
            await fetch(made, web.url, headers=[(b"X", b"a\r\nY: b")])
        assert web.connections == 0
