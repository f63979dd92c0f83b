"""A signal reaches every node within five seconds, and all nodes together never take more pages
than there are."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.membership import (
    POLL,
    SharedKeys,
    Signal,
    Signals,
    StopSignalError,
    UnansweredError,
)
from krowlspider.cluster.register.port import PAGES, RegisterKeys, pages_taken
from krowlspider.cluster.registers import Agent
from tests.cluster.forwarding import LATE
from tests.cluster.register_nodes import open_at

from .memory_keys import MemoryKeys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from .register_nodes import Place as RegisterPlace
    from .servers import Server

HONOURED = 5.0


@dataclass
class Place:
    """A server for the keys of one cluster, with as many users as a test wants."""

    server: Server | RegisterPlace
    cluster: str

    @asynccontextmanager
    async def keys(self) -> AsyncIterator[SharedKeys]:
        register = open_at(self.server)
        yield RegisterKeys(register, self.cluster)
        register.close()


class MemoryPlace(Place):
    """The fake of a server."""

    def __init__(self) -> None:
        self._keys = MemoryKeys()

    @asynccontextmanager
    async def keys(self) -> AsyncIterator[SharedKeys]:
        yield self._keys


@asynccontextmanager
async def listening(
    keys: SharedKeys, on_change: Callable[[Signal], None] = lambda _: None
) -> AsyncIterator[Signals]:
    signals = Signals(keys, poll=0.02)
    task = asyncio.create_task(signals.run(lambda: on_change(signals.signal)))
    try:
        yield signals
    finally:
        task.cancel()


@pytest.fixture
def place(register: Server | RegisterPlace, cluster: str) -> Place:
    return Place(register, cluster)


async def heard(condition: Callable[[], bool], within: float = HONOURED) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"not heard within {within} s"
        await asyncio.sleep(0.01)


def test_every_node_hears_a_signal():
    async def main() -> None:
        keys, changes = MemoryKeys(), []
        async with listening(keys, changes.append) as one, listening(keys) as other:
            assert one.signal == other.signal == "RUNNING"
            await other.send(Signal.PAUSED)
            await heard(lambda: one.signal == other.signal == "PAUSED")
            keys.values["signal"] = "RUNNING\n"
            await heard(lambda: one.signal == other.signal == "RUNNING")
            await other.send(Signal.STOP)
            await heard(lambda: len(changes) == 3)
            assert changes == [Signal.PAUSED, Signal.RUNNING, Signal.STOP]

    asyncio.run(main())


def test_signal_sent_before_the_start_is_heard():
    async def main() -> None:
        keys = MemoryKeys()
        keys.values["signal"] = "PAUSED"
        changes: list[Signal] = []
        async with listening(keys, changes.append):
            await heard(lambda: changes == [Signal.PAUSED])

    asyncio.run(main())


def test_invalid_signal_is_logged_once_and_ignored(caplog: pytest.LogCaptureFixture):
    async def main() -> None:
        keys = MemoryKeys()
        signals = Signals(keys)
        for text in ("PAUSED", "pause please", "pause please"):
            keys.values["signal"] = text
            assert await signals.read() is Signal.PAUSED
        keys.values["signal"] = "RUNNING"
        assert await signals.read() is Signal.RUNNING

    asyncio.run(main())
    assert [r.levelno for r in caplog.records].count(logging.WARNING) == 1
    assert "'pause please'" in caplog.text


def test_last_signal_stands_while_the_server_is_down():
    async def main() -> None:
        keys = MemoryKeys()
        keys.values["signal"] = "PAUSED"
        async with listening(keys) as signals:
            await heard(lambda: signals.signal is Signal.PAUSED)
            keys.answers = False
            keys.values["signal"] = "STOP"
            await asyncio.sleep(0.1)
            assert signals.signal is Signal.PAUSED
            keys.answers = True
            await heard(lambda: signals.signal is Signal.STOP)

    asyncio.run(main())


@pytest.mark.slow
def test_call_to_a_frozen_server_ends_in_time(place: Place):
    """A call to a frozen server ends in time, and stalls nothing."""

    async def main() -> None:
        async with place.keys() as keys:
            with place.server.frozen():
                began = time.monotonic()
                call = asyncio.create_task(keys.get("signal"))
                longest = 0.0
                while not call.done():
                    before = time.monotonic()
                    await asyncio.sleep(0.01)
                    longest = max(longest, time.monotonic() - before)
                with pytest.raises(UnansweredError):
                    await call
                assert time.monotonic() - began + POLL < HONOURED
                assert longest < LATE

    asyncio.run(main())


def test_keys_are_written_read_and_deleted(place: Place):
    async def main() -> None:
        async with place.keys() as keys, place.keys() as other:
            assert await keys.get("signal") is None
            await keys.put("signal", "PAUSED")
            assert await other.get("signal") == b"PAUSED"
            await other.delete("signal")
            assert await keys.get("signal") is None

    asyncio.run(main())


def test_concurrent_nodes_take_the_whole_budget_and_no_more(place: Place):
    limit = 1000

    async def one(seed: int, taken: list[int]) -> None:
        chance = random.Random(seed)
        async with place.keys() as keys:
            for _ in range(12):
                got = await keys.add(PAGES, chance.randint(1, 40), limit)
                taken.append(got)
                assert sum(taken) <= limit
                if got and chance.random() < 0.3:
                    # No longer ours from the moment at which others may have it.
                    taken.append(-got)
                    assert await keys.add(PAGES, -got, limit) == -got

    async def main() -> None:
        taken: list[int] = []
        await asyncio.gather(*(one(seed, taken) for seed in range(6)))
        async with place.keys() as keys:
            rest = limit - sum(taken)
            assert await keys.add(PAGES, limit, limit) == rest
            assert await keys.add(PAGES, 1, limit) == 0
            await keys.add(PAGES, -5, limit)
            assert await keys.add(PAGES, 7, limit) == 5

    asyncio.run(main())


def test_number_of_taken_pages_stays_in_its_bounds(place: Place):
    async def main() -> None:
        async with place.keys() as keys, place.keys() as other:
            assert await pages_taken(keys) == 0
            assert await keys.add(PAGES, 4, 10) == 4
            assert await other.add(PAGES, 9, 10) == 6
            assert await pages_taken(keys) == await pages_taken(other) == 10
            assert await keys.add(PAGES, -3, 10) == -3
            # A limit that is lower now gives none and takes none away.
            assert await other.add(PAGES, 1, 5) == 0
            assert await pages_taken(keys) == 7
            await other.delete(PAGES)
            assert await keys.add(PAGES, -8, 10) == 0
            assert await pages_taken(keys) == 0
            assert await keys.add(PAGES, 20, 10) == 10

    asyncio.run(main())


@pytest.mark.parametrize(
    "contract",
    [
        test_keys_are_written_read_and_deleted,
        test_concurrent_nodes_take_the_whole_budget_and_no_more,
        test_number_of_taken_pages_stays_in_its_bounds,
    ],
)
def test_memory_keys_keep_the_contract(
    contract: Callable[[Place], None],
):
    contract(MemoryPlace())


def test_budget_key_without_a_number_gives_no_pages(place: Place):
    async def main() -> None:
        async with place.keys() as keys:
            await keys.put(PAGES, "many")
            for ask in (keys.add(PAGES, 1, 10), keys.add(PAGES, -1, 10), pages_taken(keys)):
                with pytest.raises(UnansweredError):
                    await ask
            await keys.delete(PAGES)
            assert await keys.add(PAGES, 1, 10) == 1

    asyncio.run(main())


@pytest.mark.parametrize("body", [b"not json", b"7", b'[{"Key": "x"}]'])
def test_nonsense_from_an_agent_is_no_answer(body: bytes):
    """As a captive portal does, with status 200."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nX-Consul-Index: 1\r\nConnection: close\r\n\r\n"
        writer.write(head + body)
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            agent = Agent(f"http://{host}:{port}")
            with pytest.raises(UnansweredError):
                await agent.get("a")
            with pytest.raises(UnansweredError):
                await agent.list("a")
            with pytest.raises(UnansweredError):
                await RegisterKeys(agent, "a").get("signal")
            agent.close()

    asyncio.run(main())


def test_start_is_refused_only_under_the_signal_stop() -> None:
    async def main() -> None:
        keys = MemoryKeys()
        signals = Signals(keys)
        await signals.refuse_stop("c")
        await signals.send(Signal.STOP)
        with pytest.raises(StopSignalError, match="scrapy ring --signal RUNNING"):
            await signals.refuse_stop("c")
        # Joining tells that the server does not answer.
        keys.answers = False
        await signals.refuse_stop("c")

    asyncio.run(main())
