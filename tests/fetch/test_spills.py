"""Large responses go to files without a name, and come back whole."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from krowlspider.fetch.errors import ConnectionLost, Exchange, LocalExhausted, TooLarge
from krowlspider.fetch.memory import AHEAD, SPILLED, FetchMemory, Memory, Spills, StoredResponse
from tests.fetch.web import client, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fetch.web import Peer, Run

MB = 1024 * 1024
BODY = b"".join(b"%07d " % number for number in range(200_000))
CHUNKS = b"".join(
    b"%x\r\n%b\r\n" % (len(BODY[at : at + 10_000]), BODY[at : at + 10_000])
    for at in range(0, len(BODY), 10_000)
)
RESPONSES = {
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS + b"0\r\n\r\n",
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY,
}
# One read of a socket takes at most this much.
READ = 256 * 1024


@asynccontextmanager
async def spilling(folder: Path, loaded: int = 64 * MB) -> AsyncIterator[Spills]:
    spills = Spills(asyncio.get_running_loop(), folder, loaded)
    try:
        yield spills
    finally:
        await spills.close()


async def fetch(
    url: str, spills: Spills, memory: FetchMemory, timeout: float = 15, max_size: int = 10 * MB
) -> Exchange:
    async with client() as made:
        return await made.fetch(
            url, "GET", [], b"", timeout=timeout, max_size=max_size, memory=memory, spills=spills
        )


def stored(exchange: Exchange | None) -> StoredResponse:
    assert exchange is not None
    assert exchange.stored is not None
    assert (exchange.response_bytes, exchange.body) == (b"", b"")
    return exchange.stored


@pytest.mark.parametrize("framing", RESPONSES)
async def test_large_response_is_whole_and_not_in_memory(tmp_path: Path, framing: str) -> None:
    response = RESPONSES[framing]

    sent = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(response[:-5])
        await sent.wait()
        await peer.send(response[-5:])
        await peer.gone()

    memory = Memory()
    async with spilling(tmp_path) as spills, serve(script) as web:
        page = FetchMemory(memory)
        task = asyncio.create_task(fetch(web.url, spills, page))
        most = 0
        while page.size or not most:
            await asyncio.sleep(0)
            most = max(most, memory.used)
        # Nothing is in memory, and a killed process leaves no file.
        assert most <= 2 * (SPILLED + AHEAD + 2 * READ)
        assert list(tmp_path.iterdir()) == []
        sent.set()
        exchange = await task
        found = stored(exchange)
        assert exchange.response_size == found.size == len(response)
        assert found.mapped() == (response, BODY)
        assert await spills.load(found, page, waits=True) == BODY
        assert page.size == found.body_size == len(BODY)
        page.release()
        assert memory.used == spills._loaded.used == 0


async def test_cut_responses_are_stored_as_far_as_they_came(tmp_path: Path) -> None:
    response = RESPONSES["length"]

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(response[:-1])

    async with spilling(tmp_path) as spills, serve(script) as web:
        with pytest.raises(ConnectionLost) as cut:
            await fetch(web.url, spills, FetchMemory(Memory()))
        with pytest.raises(TooLarge) as large:
            await fetch(web.url, spills, FetchMemory(Memory()), max_size=MB)
        for error, reason in ((cut, "disconnect"), (large, "length")):
            exchange = error.value.exchange
            assert exchange is not None
            assert exchange.truncated == reason
            came, _ = stored(exchange).mapped()
            assert came == response[: len(came)]
            assert MB < len(came) < len(response)


async def test_small_response_is_never_in_a_file(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + BODY[:200_000])
        await peer.gone()

    async with spilling(tmp_path / "missing") as spills, serve(script) as web:
        exchange = await fetch(web.url, spills, FetchMemory(Memory()))
        assert (exchange.stored, exchange.body) == (None, BODY[:200_000])


async def test_failing_disk_is_a_local_failure(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(RESPONSES["length"])
        await peer.gone()

    async with spilling(tmp_path / "missing") as spills, serve(script) as web:
        with pytest.raises(LocalExhausted, match="missing") as caught:
            await fetch(web.url, spills, FetchMemory(Memory()))
        assert caught.value.exchange is None


def test_too_many_open_files_fail_one_response_alone(run: Run, tmp_path: Path) -> None:
    """No file is left, and the next response comes whole."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def allow_no_more() -> None:
        first_free = os.dup(0)
        os.close(first_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, hard))

    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            if not failed:
                allow_no_more()
            await peer.send(RESPONSES["length"])
            await peer.gone()

        failed: list[str] = []
        async with spilling(tmp_path) as spills, serve(script) as web:
            try:
                await fetch(web.url, spills, FetchMemory(Memory()))
            except LocalExhausted as error:
                failed.append(str(error))
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert "Too many open files" in failed[0]
            memory = FetchMemory(Memory())
            exchange = await fetch(web.url, spills, memory)
            assert await spills.load(stored(exchange), memory, waits=False) == BODY

    run(main())
    assert list(tmp_path.iterdir()) == []


async def test_slow_disk_pauses_the_transfer(tmp_path: Path) -> None:
    """The timeout that follows is not the host's fault, and what came is kept."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(RESPONSES["length"])
        await peer.gone()

    free = threading.Event()
    memory = Memory()
    async with spilling(tmp_path) as spills, serve(script) as web:
        for _ in range(spills._threads._max_workers):
            spills._threads.submit(free.wait)
        asyncio.get_running_loop().call_later(0.2, free.set)
        with pytest.raises(LocalExhausted) as caught:
            await fetch(web.url, spills, FetchMemory(memory), timeout=0.15)
        came = stored(caught.value.exchange).size
        assert SPILLED < came <= SPILLED + AHEAD + 2 * READ


async def test_bodies_are_loaded_as_far_as_there_is_room(tmp_path: Path) -> None:
    """One goes on over the line, as in `Memory`; an awaited one never waits."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(RESPONSES["chunked"])
        await peer.gone()

    async with spilling(tmp_path, loaded=2 * MB) as spills, serve(script) as web:
        found = stored(await fetch(web.url, spills, FetchMemory(Memory())))
        pages = [FetchMemory(Memory()) for _ in range(4)]
        loads = [
            asyncio.create_task(spills.load(found, page, waits=page is not pages[3]))
            for page in pages
        ]
        assert await loads[0] == await loads[1] == await loads[3] == BODY
        assert pages[2].size == 0, "it waits"
        for page in (pages[0], pages[1]):
            page.release()
        assert pages[2].size == 0, "it waits"
        pages[3].release()
        assert await loads[2] == BODY
