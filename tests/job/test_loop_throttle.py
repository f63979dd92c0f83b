"""However much is ready at once, the loop comes round between a few."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.job.in_flight import (
    AT_MOST,
    FOR_CLIENTS,
    UNWATCHED,
    WATCHED,
    WATCHED_TURNS,
    LoopThrottle,
    LoopTurns,
)
from krowlspider.urls.page.links import read_page
from tests.support.crawls import crawl_of, page
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path


def run(count: int, most: int, cancelled: tuple[int, ...] = ()) -> tuple[list[int], list[int]]:
    """Who came through, in order, and how many in each turn of the loop."""
    order: list[int] = []
    turns: list[int] = []
    turns_of_crawl = LoopTurns()

    async def main() -> None:
        # The number stays while a client waits.
        turns_of_crawl.serve(1)
        turns_of_crawl.at_once = most
        loop_throttle = LoopThrottle(turns_of_crawl, lambda: 0.0)

        async def one(number: int) -> None:
            await loop_throttle()
            order.append(number)

        tasks = [asyncio.create_task(one(number)) for number in range(count)]
        while not all(task.done() for task in tasks):
            before = len(order)
            await asyncio.sleep(0)
            turns.append(len(order) - before)
            for number in cancelled:
                tasks[number].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    return order, turns


@pytest.mark.parametrize(("count", "most"), [(0, 4), (1, 4), (4, 4), (5, 4), (1000, 16)])
def test_callers_pass_in_order_and_few_in_a_turn(count: int, most: int) -> None:
    order, turns = run(count, most)
    assert order == list(range(count))
    assert max(turns, default=0) <= most
    # Nor does it dawdle.
    assert len(turns) <= count // most + 4


def test_one_that_is_cancelled_takes_nobodys_place() -> None:
    order, turns = run(40, 4, cancelled=tuple(range(10, 30)))
    assert order == [number for number in range(40) if not 10 <= number < 30]
    assert max(turns) <= 4


# --- how many ---


def test_a_turn_has_as_many_answers_as_it_has_time_for() -> None:
    """On a machine of which others take their part, a page takes longer."""
    now = 0.0

    async def main() -> list[int]:
        nonlocal now
        found = []
        turns = LoopTurns()
        throttle = LoopThrottle(turns, lambda: now)

        async def one(cost: float) -> None:
            nonlocal now
            await throttle()
            now += cost

        async def pages(number: int, cost: float) -> None:
            await asyncio.gather(*(one(cost) for _ in range(number)))
            found.append(turns.at_once)

        for cost in (1e-5, 0.02, UNWATCHED[0] / 10.5):
            await pages(1000, cost)
        for cost in (0.02, WATCHED[0] / 8.5, 1e-5):
            turns.serve(0)
            await pages(300, cost)
        await pages(WATCHED[1] * WATCHED_TURNS + 300, 0.02)
        return found

    assert asyncio.run(main()) == [AT_MOST, UNWATCHED[1], 10, WATCHED[1], 8, AT_MOST, UNWATCHED[1]]


def test_a_turn_is_shortest_while_a_client_waits() -> None:
    turns = LoopTurns()
    turns.took(WATCHED[0], 8)
    turns.serve(2)
    for _ in range(100):
        turns.took(WATCHED[0] / 100, 8)
    assert turns.at_once == FOR_CLIENTS
    turns.serve(0)
    # As many as fit by the turns before it waited.
    assert turns.at_once == 15
    turns.took(WATCHED[0], 8)
    assert turns.at_once == 14


# --- what is on its way when a client comes ---


def test_one_passes_in_a_turn_while_a_client_waits_and_the_rest_after_it() -> None:
    order: list[int] = []

    async def main() -> None:
        turns = LoopTurns()
        throttle = LoopThrottle(turns, lambda: 0.0)

        async def one(number: int) -> None:
            await throttle.for_clients()
            order.append(number)

        await one(0)
        turns.serve(1)
        tasks = [asyncio.create_task(one(number)) for number in range(1, 30)]
        await asyncio.sleep(0)
        tasks[4].cancel()
        before = len(order)
        for _ in range(10):
            await asyncio.sleep(0)
            assert len(order) - before <= 1
            before = len(order)
        assert 5 < before < 12
        turns.serve(0)
        await one(30)
        assert order[-1] == 30
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    order.remove(30)
    assert order == [number for number in range(30) if number != 5]


def test_pages_are_read_one_in_a_turn_while_a_client_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those whose answers had passed before it came: here all of them, in one turn."""
    hosts = [f"host{number}.test" for number in range(12)]
    read: list[int] = []
    turn = 0

    async def all_at_once(self: LoopThrottle) -> None:
        nonlocal passed
        passed += 1
        if passed == len(hosts):
            self._turns.serve(1)
            come.set()
        await come.wait()

    def noted(*args: Any, **options: Any) -> Any:
        read.append(turn)
        asyncio.get_running_loop().call_soon(end)
        return read_page(*args, **options)

    def end() -> None:
        nonlocal turn
        turn += 1

    passed, come = 0, asyncio.Event()
    monkeypatch.setattr(LoopThrottle, "__call__", all_at_once)
    monkeypatch.setattr("krowlspider.spiders.broad.read_page", noted)
    with SimulatedWeb(spec=[page("/", "x")]) as web:
        crawl = crawl_of(
            web, tmp_path, [web.url(host) for host in hosts], settings={"ROBOTSTXT_OBEY": False}
        ).run()
    assert len(crawl.items) == len(set(read)) == len(hosts)
