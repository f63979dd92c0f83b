"""The account of bytes in memory: which fetches wait, which go on, and that one always does."""

from __future__ import annotations

import asyncio
import ssl
from random import Random
from typing import TYPE_CHECKING

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.fetch.errors import LocalExhausted
from krowlspider.fetch.memory import READ, SMALL, FetchMemory, Memory
from tests.fetch.web import client, serve

if TYPE_CHECKING:
    from tests.fetch.web import Peer

MB = 1024 * 1024
LIMIT = 16 * MB


class Transfer:
    """A fetch that asks before it takes more memory."""

    def __init__(self, memory: Memory):
        self.page = FetchMemory(memory)
        self.goes_on = True

    def receive(self, size: int) -> None:
        assert self.goes_on
        self.page.receive(size)
        if self.page.must_wait():
            self.goes_on = False
            self.page.wait(READ, self._go_on)

    def _go_on(self) -> None:
        self.goes_on = True


def test_large_bodies_but_the_first_wait_over_the_line() -> None:
    memory = Memory(LIMIT)
    one, two, three = (Transfer(memory) for _ in range(3))
    one.receive(4 * MB)
    two.receive(4 * MB)
    assert one.goes_on
    assert two.goes_on, "the first to wait still goes on"
    one.receive(1)
    three.receive(MB)
    assert [each.goes_on for each in (one, two, three)] == [False, True, False]
    assert memory.waits == 3
    # The page of the first fetch is over: there is room for all.
    two.page.release()
    assert one.goes_on
    assert three.goes_on
    assert memory.used == 2 * (4 * MB + 1 + MB)


def test_small_bodies_never_wait() -> None:
    memory = Memory(LIMIT)
    Transfer(memory).receive(LIMIT)
    Transfer(memory).receive(LIMIT)
    small = Transfer(memory)
    small.receive(SMALL // 2)
    assert small.goes_on
    small.receive(1)
    assert not small.goes_on


def test_no_request_begins_over_the_limit() -> None:
    calls: list[None] = []
    memory = Memory(LIMIT, on_room=lambda: calls.append(None))
    memory.grow(LIMIT)
    assert memory.admits()
    memory.grow(1)
    assert not memory.admits()
    assert not memory.admits()
    assert memory.waits == 1
    assert memory.keeps_out
    memory.shrink(1)
    memory.shrink(1)
    assert len(calls) == 1
    assert memory.admits()
    assert not memory.keeps_out


def test_ended_fetch_waits_no_more_and_holds_nothing() -> None:
    memory = Memory(LIMIT)
    first, second = Transfer(memory), Transfer(memory)
    first.receive(LIMIT)
    second.receive(MB)
    assert not second.goes_on
    second.page.stop_waiting()
    second.page.release()
    first.page.release()
    assert not second.goes_on
    assert memory.used == 0


def test_without_a_limit_nobody_waits() -> None:
    memory = Memory()
    each = Transfer(memory)
    each.receive(10**15)
    assert each.goes_on
    assert memory.admits()


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 3) | st.integers(MB, 8 * MB)), max_size=300
    )
)
def test_all_transfers_end_whatever_their_order(steps: list[tuple[int, int]]) -> None:
    """Each step is one transfer's. At the end, those that go on end one after another until none is
    left."""
    memory = Memory(LIMIT)
    transfers = [Transfer(memory) for _ in range(10)]
    for number, size in steps:
        if transfers[number].goes_on:
            transfers[number].receive(size)
    left = list(transfers)
    while left:
        going = [each for each in left if each.goes_on]
        assert going, "nobody can go on"
        going[0].page.release()
        left.remove(going[0])
    assert memory.used == 0


# --- on sockets ---

BODY = Random(1).randbytes(4_000_000)
CHUNKS = b"".join(
    b"%x\r\n%b\r\n" % (len(BODY[at : at + 10_000]), BODY[at : at + 10_000])
    for at in range(0, len(BODY), 10_000)
)
FRAMINGS = {
    "chunked": b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS + b"0\r\n\r\n",
    "length": b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
}


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("secure", [False, True])
async def test_bodies_wait_in_their_sockets_and_are_whole(framing: str, secure: bool) -> None:
    """Twelve of 4 MB count twice; 16 MB are allowed. Each ends in the turn after it was read."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n" + FRAMINGS[framing])
        await peer.gone()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if secure else None
    if context is not None:
        trustme.CA().issue_cert("a.test").configure_cert(context)
    memory = Memory(LIMIT)
    most = 0

    async def one(url: str) -> None:
        nonlocal most
        page = FetchMemory(memory)
        exchange = await made.fetch(url, "GET", [], b"", timeout=15, max_size=10 * MB, memory=page)
        most = max(most, memory.used)
        assert exchange.body == BODY
        page.release()

    async with serve(script, tls=context) as web, client() as made:
        url = web.url.replace("http:", "https:") if secure else web.url
        await asyncio.gather(*(one(url) for _ in range(12)))
    assert memory.waits > 0
    assert memory.used == 0
    # One body goes on over the line, and each of the others by one read of 256 kB.
    assert most < LIMIT + 2 * len(BODY) + 12 * READ


async def test_body_that_waits_to_its_timeout_is_a_local_failure() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n" + FRAMINGS["length"])
        await peer.gone()

    memory = Memory(LIMIT)
    first = FetchMemory(memory)
    first.receive(LIMIT)
    first.wait(READ, lambda: None)
    async with serve(script) as web, client() as made:
        page = FetchMemory(memory)
        with pytest.raises(LocalExhausted, match="memory") as caught:
            await made.fetch(web.url, "GET", [], b"", timeout=0.3, max_size=10 * MB, memory=page)
    assert caught.value.exchange is not None
    assert caught.value.exchange.truncated == "time"
    page.release()
    first.release()
    assert memory.used == 0


def test_has_waited_covers_the_time_since_the_last_call() -> None:
    """So an earlier wait does not excuse a host that sends slowly later."""
    memory = Memory(8 * SMALL)
    memory.grow(8 * SMALL)
    running, page = FetchMemory(memory), FetchMemory(memory)
    running.wait(READ, lambda: None)
    went_on: list[bool] = []
    page.wait(READ, lambda: went_on.append(True))
    assert page.has_waited()
    assert page.has_waited(), "it still waits"
    memory.shrink(8 * SMALL)
    assert went_on == [True]
    assert page.has_waited()
    assert not page.has_waited()
