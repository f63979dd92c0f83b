from __future__ import annotations

import asyncio
import socket
import tracemalloc

import pytest

from krowlspider.fetch.errors import (
    ConnectTimeout,
    FirstByteTimeout,
    ProtocolBroken,
    TooLarge,
    TotalTimeout,
)
from tests.fetch.web import Peer, Script, client, closing, fetch, serve

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"


async def silent(peer: Peer) -> None:
    await peer.request()
    await peer.gone()


def endless(start: bytes, piece: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(start)
        while True:
            await peer.send(piece)

    return script


async def test_silent_server_ends_at_the_first_byte_timeout() -> None:
    async with serve(silent) as web, client(first_byte_timeout=0.05) as made:
        with pytest.raises(FirstByteTimeout) as caught:
            await fetch(made, web.url)
        await web.gone.wait()
        assert caught.value.exchange is None


async def test_dripping_body_is_cut_and_its_bytes_kept() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD)
        while True:
            await peer.send(b"x")
            await asyncio.sleep(0.005)

    async with serve(script) as web, client(first_byte_timeout=0.1) as made:
        with pytest.raises(TotalTimeout) as caught:
            await fetch(made, web.url, timeout=0.3)
        await web.gone.wait()
    partial = caught.value.exchange
    assert partial is not None
    assert partial.truncated == "time"
    assert partial.response_bytes == HEAD + partial.body
    assert set(partial.body) == {ord("x")}
    assert 0.25 < partial.times.duration < 3


@pytest.mark.parametrize(
    "start",
    [
        HEAD,
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3b9aca00\r\n",
    ],
)
async def test_gigabyte_is_cut_at_the_cap_with_bounded_memory(start: bytes) -> None:
    async with serve(endless(start, bytes(100_000))) as web, client() as made:
        tracemalloc.start()
        try:
            with pytest.raises(TooLarge) as caught:
                await fetch(made, web.url, max_size=1_000_000)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await web.gone.wait()
    partial = caught.value.exchange
    assert partial is not None
    assert partial.truncated == "length"
    assert 1_000_000 < len(partial.body) <= 1_000_000 + 256 * 1024
    assert peak < 8_000_000


async def test_chunks_that_turn_to_garbage_keep_what_came_before() -> None:
    response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n<oops>\r\n"
    async with serve(closing(response)) as web, client() as made:
        with pytest.raises(ProtocolBroken) as caught:
            await fetch(made, web.url)
    partial = caught.value.exchange
    assert partial is not None
    assert (partial.body, partial.truncated) == (b"hello", "disconnect")


async def test_port_that_accepts_nobody_ends_at_the_connect_timeout() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with socket.socket() as one, socket.socket() as two:
            for filler in (one, two):
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
            async with client(connect_timeout=0.1) as made:
                with pytest.raises(ConnectTimeout):
                    await fetch(made, f"http://127.0.0.1:{port}/")
                with pytest.raises(TotalTimeout):
                    await fetch(made, f"http://127.0.0.1:{port}/", timeout=0.05)
