"""A signal reaches every node within five seconds, and all nodes together never take more pages
than there are."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.consul.calls import Agent
from krowlspider.cluster.membership import StaticMembership, UnansweredError
from krowlspider.cluster.ring.ring import Member
from krowlspider.cluster.signals import (
    Budget,
    ConsulBudget,
    ConsulSignals,
    RedisBoard,
    RedisBudget,
    RedisSignals,
    Signal,
    Signals,
)
from krowlspider.cluster.transport.redis_connection import redis_client
from tests.cluster.forwarding import LATE

from .purse import Pocket
from .servers import consul_agent, redis_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from redis.asyncio import Redis

    from .servers import Server

HONOURED = 5.0
_numbers = count()


@dataclass
class Place:
    """A server for the signals of one cluster, with as many users as a test wants."""

    kind: str
    server: Server
    cluster: str

    @asynccontextmanager
    async def signals(self) -> AsyncIterator[Signals]:
        async with self._client() as client:
            if isinstance(client, Agent):
                signals: Signals = ConsulSignals(client, self.cluster)
            else:
                signals = RedisSignals(client, self.cluster)
            await signals.start()
            yield signals
            await signals.close()

    @asynccontextmanager
    async def budget(self, limit: int) -> AsyncIterator[Budget]:
        async with self._client() as client:
            if isinstance(client, Agent):
                yield ConsulBudget(client, self.cluster, limit)
            else:
                yield RedisBudget(client, self.cluster, limit)

    async def write(self, text: bytes, name: str = "signal") -> None:
        """Put something in the place of the signal, or of another name, as a person does."""
        if self.kind == "redis":
            async with redis_client(self.server.url) as client:
                await client.set(f"krowlspider:{self.cluster}:{name}", text)
        else:
            url = f"{self.server.url}/v1/kv/krowlspider/{self.cluster}/{name}"
            request = urllib.request.Request(url, data=text, method="PUT")
            with urllib.request.urlopen(request, timeout=5) as answer:
                assert json.load(answer) is True

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Agent | Redis]:
        if self.kind == "redis":
            async with redis_client(self.server.url) as client:
                yield client
        else:
            agent = Agent(self.server.url)
            yield agent
            agent.close()


@pytest.fixture(scope="module", params=["consul", "redis"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Server]]:
    make = redis_server if request.param == "redis" else consul_agent
    with make(tmp_path_factory.mktemp(request.param) / "server") as started:
        yield request.param, started


@pytest.fixture
def place(server: tuple[str, Server]) -> Place:
    return Place(*server, f"test{next(_numbers)}")


async def heard(condition: Callable[[], bool], within: float = HONOURED) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"not heard within {within} s"
        await asyncio.sleep(0.01)


def test_a_signal_is_heard_by_every_node_and_taken_back(place: Place):
    async def main() -> None:
        async with place.signals() as one, place.signals() as other:
            changes: list[Signal] = []
            one.on_change = lambda: changes.append(one.signal)
            assert one.signal == other.signal == "RUNNING"
            await other.send(Signal.PAUSED)
            await heard(lambda: one.signal == other.signal == "PAUSED")
            await place.write(b"RUNNING\n")
            await heard(lambda: one.signal == other.signal == "RUNNING")
            await other.send(Signal.STOP)
            await heard(lambda: one.signal == other.signal == "STOP")
            assert changes == [Signal.PAUSED, Signal.RUNNING, Signal.STOP]

    asyncio.run(main())


def test_a_signal_that_was_given_before_the_start_is_heard(place: Place):
    async def main() -> None:
        await place.write(b"PAUSED")
        async with place.signals() as signals:
            await heard(lambda: signals.signal is Signal.PAUSED)

    asyncio.run(main())


def test_a_word_that_is_no_signal_is_told_once_and_changes_nothing(
    place: Place, caplog: pytest.LogCaptureFixture
):
    async def main() -> None:
        await place.write(b"PAUSED")
        async with place.signals() as signals:
            await heard(lambda: signals.signal is Signal.PAUSED)
            await place.write(b"pause please\xff")
            await heard(lambda: bool(told(caplog)))
            assert signals.signal is Signal.PAUSED
            # A second look at the same word: the signal after it is heard, so it was made.
            signals._said(b"pause please\xff")
            await place.write(b"RUNNING")
            await heard(lambda: signals.signal is Signal.RUNNING)
            assert len(told(caplog)) == 1

    asyncio.run(main())


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


def test_a_server_that_is_down_leaves_the_last_signal_and_is_heard_when_it_is_back(place: Place):
    async def main() -> None:
        async with place.signals() as signals:
            await signals.send(Signal.PAUSED)
            await heard(lambda: signals.signal is Signal.PAUSED)
            place.server.kill()
            with pytest.raises(UnansweredError):
                await signals.send(Signal.STOP)
            assert signals.signal is Signal.PAUSED
            await asyncio.to_thread(place.server.start)
            await signals.send(Signal.STOP)
            await heard(lambda: signals.signal is Signal.STOP)

    asyncio.run(main())


def test_a_server_that_is_frozen_is_given_up_in_time_and_stalls_nothing(place: Place):
    async def main() -> None:
        async with place.signals() as signals, place.budget(10) as budget:
            with place.server.frozen():
                began = longest = time.monotonic()
                call = asyncio.create_task(budget.take(1))
                longest = 0.0
                while not call.done():
                    before = time.monotonic()
                    await asyncio.sleep(0.01)
                    longest = max(longest, time.monotonic() - before)
                with pytest.raises(UnansweredError):
                    await call
                assert time.monotonic() - began < HONOURED
                assert longest < LATE
                assert signals.signal is Signal.RUNNING

    asyncio.run(main())


def test_nodes_that_take_at_once_take_the_whole_budget_and_never_more(place: Place):
    limit = 1000

    async def one(seed: int, taken: list[int]) -> None:
        chance = random.Random(seed)
        async with place.budget(limit) as budget:
            for _ in range(12):
                got = await budget.take(chance.randint(1, 40))
                taken.append(got)
                assert sum(taken) <= limit
                if got and chance.random() < 0.3:
                    # No longer ours from the moment at which others may have it.
                    taken.append(-got)
                    await budget.give_back(got)

    async def main() -> None:
        taken: list[int] = []
        await asyncio.gather(*(one(seed, taken) for seed in range(6)))
        async with place.budget(limit) as budget:
            rest = limit - sum(taken)
            assert await budget.take(limit) == rest
            assert await budget.take(1) == 0
            await budget.give_back(5)
            assert await budget.take(7) == 5

    asyncio.run(main())


def test_what_was_given_back_may_be_taken_again_and_no_more(place: Place):
    async def main() -> None:
        async with place.budget(10) as budget:
            assert await budget.take(4) == 4
            await budget.give_back(4)
            assert await budget.take(11) == 10

    asyncio.run(main())


def test_what_is_taken_is_told_and_nothing_is_after_a_reset(place: Place):
    async def main() -> None:
        async with place.budget(10) as budget, place.budget(10) as other:
            assert await budget.taken() == 0
            await budget.take(4)
            await other.take(9)
            assert await budget.taken() == await other.taken() == 10
            await budget.give_back(3)
            assert await other.taken() == 7
            await other.reset()
            assert await budget.taken() == 0
            assert await budget.take(11) == 10

    asyncio.run(main())


def test_pages_that_come_back_after_a_reset_give_nobody_more_than_there_are(place: Place):
    async def main() -> None:
        async with place.budget(10) as budget:
            await budget.take(8)
            await budget.reset()
            await budget.give_back(8)
            assert await budget.taken() == 0
            assert await budget.take(20) == 10

    asyncio.run(main())


def test_a_limit_that_is_lower_now_gives_none_and_takes_none_away(place: Place):
    async def main() -> None:
        async with place.budget(10) as before, place.budget(5) as now:
            await before.take(8)
            assert await now.take(1) == 0
            assert await now.taken() == 8

    asyncio.run(main())


@pytest.mark.parametrize(
    "contract",
    [
        test_nodes_that_take_at_once_take_the_whole_budget_and_never_more,
        test_what_was_given_back_may_be_taken_again_and_no_more,
        test_what_is_taken_is_told_and_nothing_is_after_a_reset,
        test_pages_that_come_back_after_a_reset_give_nobody_more_than_there_are,
        test_a_limit_that_is_lower_now_gives_none_and_takes_none_away,
    ],
)
def test_the_purse_that_stands_in_for_a_budget_keeps_its_contract(
    contract: Callable[[Pocket], None],
):
    contract(Pocket())


def test_a_budget_that_holds_no_number_gives_no_pages(place: Place):
    async def main() -> None:
        await place.write(b"many", "pages")
        async with place.budget(10) as budget:
            for ask in (budget.take(1), budget.give_back(1), budget.taken()):
                with pytest.raises(UnansweredError):
                    await ask
            await budget.reset()
            assert await budget.take(1) == 1

    asyncio.run(main())


def test_nodes_of_a_static_ring_see_each_others_counters_and_go_on_without_a_server(
    server: tuple[str, Server],
):
    kind, redis = server
    if kind != "redis":
        pytest.skip("the board is a Redis")
    members = [Member("a"), Member("b")]

    async def main() -> None:
        async with redis_client(redis.url) as client:
            board = RedisBoard(client, f"test{next(_numbers)}")
            a, b = (StaticMembership(m.id, members, "c", board=board) for m in members)
            await a.beat({"pages": 1})
            await b.beat({"pages": 2})
            assert b.members["a"].counters == {"pages": 1}
            await client.hset(board.key, mapping={"a": "junk", "z": "{}"})
            await b.beat({"pages": 3})
            assert b.members["a"].counters == {"pages": 1}
            assert b.members.keys() == {"a", "b"}
            with redis.frozen():
                await b.beat({"pages": 4})
            assert b.members["b"].counters == {"pages": 4}

    asyncio.run(main())


def test_what_talks_to_redis_ends_when_it_is_cancelled_whenever_that_is(server: tuple[str, Server]):
    kind, redis = server
    if kind != "redis":
        pytest.skip("redis-py is what may swallow it")

    async def talk(board: RedisBoard) -> None:
        while True:
            await board.exchange("a", {"pages": 1})

    async def main() -> None:
        async with redis_client(redis.url) as client:
            board = RedisBoard(client, f"test{next(_numbers)}")
            for turns in range(300):
                talking = asyncio.create_task(talk(board))
                for _ in range(turns % 30):
                    await asyncio.sleep(0)
                talking.cancel()
                done, _ = await asyncio.wait({talking}, timeout=5)
                assert done, f"it went on after {turns % 30} turns of the loop"

    asyncio.run(main())


@pytest.mark.parametrize("body", [b"not json", b"7", b'[{"Key": "x"}]'])
def test_an_agent_that_answers_nonsense_has_not_answered(body: bytes):
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
                await ConsulSignals(agent, "a").look()
            agent.close()

    asyncio.run(main())
