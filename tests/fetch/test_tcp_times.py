"""Time in which the event loop did not come to read an answer is no latency of its host."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import threading
import time
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING

import pytest
import trustme

from krowlspider.fetch.connection import kernel_latency
from tests.fetch.web import client, fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.fetch.errors import Exchange

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
# Seconds of work in each turn of the loop: shorter than what its clock takes for a hold.
TURN = 0.08
# Seconds within which the kernel's figures are exact, and a thread comes to its turn.
EXACT = 0.05


@contextmanager
def server(seconds: float, tls: ssl.SSLContext | None) -> Iterator[str]:
    """Serve one request by a thread, ``seconds`` after it came. Yield the URL."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer: socket.socket = listening.accept()[0]
        if tls is not None:
            peer = tls.wrap_socket(peer, server_side=True)
        with peer:
            peer.recv(65_536)
            time.sleep(seconds)
            peer.sendall(OK)
            peer.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        thread.join()
        listening.close()


async def fetched_in_busy_loop(url: str, loop: asyncio.AbstractEventLoop) -> Exchange:
    """Fetch a URL while each turn of the loop is long."""
    busy = True

    def work() -> None:
        if busy:
            time.sleep(TURN)
            loop.call_soon(work)

    async with client() as made:
        loop.call_soon(work)
        try:
            return await fetch(made, url)
        finally:
            busy = False


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not tell")
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("seconds", [0.0, 0.4])
async def test_a_host_is_not_charged_for_long_turns(secure: bool, seconds: float) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if secure else None
    if tls is not None:
        trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)

    with server(seconds, tls) as url:
        exchange = await fetched_in_busy_loop(url, asyncio.get_running_loop())
    assert exchange.body == b"hello"
    assert seconds - EXACT <= exchange.times.latency <= seconds + EXACT


def test_no_latency_is_told_without_a_socket() -> None:
    assert kernel_latency(None) == inf
