"""All nodes together take the budget and no more, and what one has not fetched others may."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from krowlspider.cluster.allowance import Allowance

from .purse import Purse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@asynccontextmanager
async def allowance(
    purse: Purse,
    on_change: Callable[[], None] = lambda: None,
    wanted: Callable[[], bool] = lambda: True,
) -> AsyncIterator[Allowance]:
    made = Allowance(purse, purse.limit, on_change, wanted=wanted, again=0.01)
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await made.close()


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - it is another task's
            await asyncio.sleep(0)


def test_pages_are_taken_before_they_are_needed_until_all_are_spent() -> None:
    async def main() -> None:
        purse = Purse(1000)
        heard = []
        async with allowance(purse, lambda: heard.append(purse.spent)) as mine:
            fetched = 0
            while not mine.spent:
                await soon(lambda: mine.left > 0 or mine.spent)
                if mine.left:
                    mine.take()
                    fetched += 1
            assert fetched == purse.spent == 1000
            assert heard[0] == 5
            assert heard[-1] == 1000

    asyncio.run(main())


def test_what_was_not_fetched_goes_back() -> None:
    async def main() -> None:
        purse = Purse(1000)
        async with allowance(purse) as mine:
            await soon(lambda: mine.left == 5)
            mine.take()
            mine.take()
            mine.give_back()
        assert purse.spent == 1
        assert mine.left == 0

    asyncio.run(main())


def test_a_server_that_is_down_leaves_what_was_taken_and_is_asked_again() -> None:
    async def main() -> None:
        purse = Purse(1000)
        async with allowance(purse) as mine:
            await soon(lambda: mine.left == 5)
            purse.answers = False
            for _ in range(5):
                mine.take()
            await asyncio.sleep(0)
            assert (mine.left, mine.spent) == (0, False)
            purse.answers = True
            await soon(lambda: mine.left == 5)

    asyncio.run(main())


def test_pages_that_others_give_back_are_had_again() -> None:
    async def main() -> None:
        purse = Purse(1)
        async with allowance(purse) as mine:
            await soon(lambda: mine.left == 1)
            mine.take()
            await soon(lambda: mine.spent)
            purse.spent -= 1
            await soon(lambda: mine.left == 1)
            assert not mine.spent

    asyncio.run(main())


def test_a_node_with_nothing_to_fetch_leaves_its_pages_to_others_and_sees_when_all_are_spent() -> (
    None
):
    async def main() -> None:
        purse = Purse(1000)
        has_work = True
        async with allowance(purse, wanted=lambda: has_work) as mine:
            await soon(lambda: mine.left == 5)
            has_work = False
            await soon(lambda: purse.spent == 0)
            assert mine.left == 0
            assert not mine.spent
            purse.spent = 1000
            await soon(lambda: mine.spent)

    asyncio.run(main())
