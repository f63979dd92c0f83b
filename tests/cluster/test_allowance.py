"""All nodes together take the page budget and no more; others may take what one did not fetch."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from krowlspider.cluster.register.port import Allowance

from .memory_keys import MemoryKeys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@asynccontextmanager
async def allowance(
    keys: MemoryKeys,
    limit: int = 1000,
    *,
    on_change: Callable[[], None] = lambda: None,
    wanted: Callable[[], bool] = lambda: True,
) -> AsyncIterator[Allowance]:
    made = Allowance(keys, limit, again=0.01)
    running = asyncio.create_task(made.run(on_change, wanted))
    try:
        yield made
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await made.close()


def taken(keys: MemoryKeys) -> int:
    return int(keys.values.get("pages", "0"))


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - it is another task's
            await asyncio.sleep(0)


def test_pages_are_taken_in_advance_until_all_are_spent() -> None:
    async def main() -> None:
        keys, heard = MemoryKeys(), []
        async with allowance(keys, on_change=lambda: heard.append(taken(keys))) as mine:
            fetched = 0
            while not mine.spent:
                await soon(lambda: mine.pages_left > 0 or mine.spent)
                if mine.pages_left:
                    mine.take()
                    fetched += 1
            assert fetched == taken(keys) == 1000
            assert heard[0] == 5
            assert heard[-1] == 1000

    asyncio.run(main())


class _BusyKeys(MemoryKeys):
    """Calls each of ``meanwhile`` once, before the next answer."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Callable[[], None]] = []

    async def add(self, name: str, number: int, limit: int) -> int:
        found = await super().add(name, number, limit)
        while self.meanwhile:
            self.meanwhile.pop()()
        return found


def test_pages_taken_while_the_server_answers_count() -> None:
    async def main() -> None:
        keys = _BusyKeys()
        async with allowance(keys) as mine:
            await soon(lambda: mine.pages_left == 5)
            keys.meanwhile.append(mine.take)
            for _ in range(3):
                mine.take()
            # Four are used, and as many were taken for them.
            await soon(lambda: mine.pages_left == 5)
            assert taken(keys) == 9

    asyncio.run(main())


def test_unfetched_pages_are_given_back() -> None:
    async def main() -> None:
        keys = MemoryKeys()
        async with allowance(keys) as mine:
            await soon(lambda: mine.pages_left == 5)
            mine.take()
            mine.take()
            mine.give_back()
        assert taken(keys) == 1
        assert mine.pages_left == 0

    asyncio.run(main())


def test_end_of_the_crawl_resets_the_budget() -> None:
    async def main() -> None:
        keys = MemoryKeys()
        async with allowance(keys) as mine:
            await soon(lambda: mine.pages_left == 5)
            mine.take()
        await mine.close(over=True)
        assert taken(keys) == 0

    asyncio.run(main())


def test_outage_keeps_the_taken_pages_and_is_retried() -> None:
    async def main() -> None:
        keys = MemoryKeys()
        async with allowance(keys) as mine:
            await soon(lambda: mine.pages_left == 5)
            keys.answers = False
            for _ in range(5):
                mine.take()
            await asyncio.sleep(0)
            assert (mine.pages_left, mine.spent) == (0, False)
            keys.answers = True
            await soon(lambda: mine.pages_left == 5)

    asyncio.run(main())


def test_pages_given_back_by_others_can_be_taken() -> None:
    async def main() -> None:
        keys = MemoryKeys()
        async with allowance(keys, 1) as mine:
            await soon(lambda: mine.pages_left == 1)
            mine.take()
            await soon(lambda: mine.spent)
            keys.values["pages"] = "0"
            await soon(lambda: mine.pages_left == 1)
            assert not mine.spent

    asyncio.run(main())


def test_idle_node_gives_pages_back_and_sees_the_end() -> None:
    async def main() -> None:
        keys, has_work = MemoryKeys(), True
        async with allowance(keys, wanted=lambda: has_work) as mine:
            await soon(lambda: mine.pages_left == 5)
            has_work = False
            await soon(lambda: taken(keys) == 0)
            assert mine.pages_left == 0
            assert not mine.spent
            keys.values["pages"] = "1000"
            await soon(lambda: mine.spent)

    asyncio.run(main())
