"""All nodes together use up the limit of a whole sheet, and no more, also after a death."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from krowlspider.cluster.register.port import portion_of
from krowlspider.frontier.entry_queues import LastAnswer
from krowlspider.frontier.grants import Grants
from krowlspider.job.nodes.sheet_limits import SheetLimits
from krowlspider.policies.sheets import Policies
from tests.cluster.memory_keys import MemoryKeys
from tests.frontier.conftest import LIMITS, KeptMemoryStore, World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.quotas import Quotas

SHEETS = """
[[sheet]]
name = "pages"
match = ["a.test"]
max_pages = 20
quota = "sheet"
[[sheet]]
name = "bytes"
match = ["b.test"]
max_bytes = 100
quota = "sheet"
[[sheet]]
name = "seconds"
match = ["c.test"]
max_seconds = 60
quota = "sheet"
"""


class Node:
    """One node with a frontier of its own, which may die and start again."""

    def __init__(self, name: str, keys: MemoryKeys) -> None:
        self.keys, self.fetched = keys, 0
        store = KeptMemoryStore()
        self.world = World(
            lambda: store, limits=LIMITS, node=name, sheets=Policies.parse(SHEETS, "p.toml")
        )

    @property
    def quotas(self) -> Quotas:
        assert self.world.frontier.quotas is not None
        return self.world.frontier.quotas

    @asynccontextmanager
    async def running(self, *, dies: bool = False) -> AsyncIterator[None]:
        # Its clock is that of the test: a grant is idle once that has moved.
        self.quotas.grants = Grants(
            self.world.store, lambda: self.world.clocks.monotonic, portion_of
        )
        limits = SheetLimits(self.keys, self.quotas, again=0.001)
        running = asyncio.create_task(limits.run(lambda: None))
        try:
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            if not dies:
                await limits.close()

    def turn(self, host: str) -> str | None:
        assert self.world.sheets is not None
        found = self.world.sheets.of_host(host)
        assert found is not None
        return self.quotas.turn(found, host, f"http://{host}/")

    def begin(self, host: str) -> Lease:
        self.fetched += 1
        self.world.add(f"http://{host}/{self.fetched}")
        self.world.clocks.pass_(1)
        lease = self.world.pop()
        assert lease is not None
        self.quotas.begin(lease)
        return lease

    def end(self, lease: Lease, size: int = 10) -> None:
        lease.answer = LastAnswer(200, None, None, size, 0.1)
        self.world.frontier.schedule.release(lease.host, 0.25)
        self.world.frontier.acknowledge(lease, None)

    async def next_turn(self, host: str) -> str:
        async with asyncio.timeout(60):
            while (found := self.turn(host)) is None:  # noqa: ASYNC110 - it is another task's
                await asyncio.sleep(0)
        return found

    async def fetch_until_refused(self, host: str, most: int = 1000) -> int:
        """Fetch pages until the limit is reached, and return how many."""
        count = 0
        while count < most and not await self.next_turn(host):
            self.end(self.begin(host))
            count += 1
        return count


def taken(keys: MemoryKeys) -> list[int]:
    return [int(value) for value in keys.values.values()]


def test_nodes_fetch_as_many_pages_as_the_sheet_allows() -> None:
    async def main() -> None:
        keys = MemoryKeys()
        one, other = Node("one", keys), Node("other", keys)
        async with one.running(), other.running():
            found = await asyncio.gather(
                *(node.fetch_until_refused("a.test") for node in (one, other))
            )
        assert sum(found) == 20
        assert min(found) > 0
        assert taken(keys) == [20]

    asyncio.run(main())


def test_a_node_that_dies_goes_on_with_what_it_has() -> None:
    """What was in flight or not committed is fetched again, and counts once."""

    async def main() -> None:
        keys = MemoryKeys()
        one, other = Node("one", keys), Node("other", keys)
        async with one.running(dies=True):
            assert await one.fetch_until_refused("a.test", 7) == 7
            one.world.commit()
            assert await one.fetch_until_refused("a.test", 3) == 3
            assert await one.next_turn("a.test") == ""
            one.begin("a.test")
        one.world.crash()
        async with other.running():
            assert await other.fetch_until_refused("a.test") == 9
            async with one.running():
                assert await one.fetch_until_refused("a.test") == 4
        assert taken(keys) == [20]

    asyncio.run(main())


def test_unused_parts_go_to_the_other_nodes() -> None:
    async def main() -> None:
        keys = MemoryKeys()
        one, other = Node("one", keys), Node("other", keys)
        async with one.running(), other.running():
            assert await one.next_turn("a.test") == ""
            assert await other.fetch_until_refused("a.test", 19) == 19
            assert other.turn("a.test") is None
            # Nobody asks for that of ``one`` any more.
            one.world.clocks.pass_(10)
            assert await other.fetch_until_refused("a.test") == 1
            assert await one.next_turn("a.test") == "max_pages"

    asyncio.run(main())


def test_bytes_and_seconds_are_of_all_nodes_too() -> None:
    async def main() -> None:
        keys = MemoryKeys()
        one, other = Node("one", keys), Node("other", keys)
        async with one.running(), other.running():
            found = await asyncio.gather(
                *(node.fetch_until_refused("b.test") for node in (one, other))
            )
            # One page in flight at each.
            assert 10 <= sum(found) <= 11
            assert await one.next_turn("c.test") == ""
            one.end(one.begin("c.test"))
            async with asyncio.timeout(60):
                while not any("max_seconds" in name for name in keys.values):  # noqa: ASYNC110
                    await asyncio.sleep(0)
            other.world.clocks.wall = one.world.clocks.wall + 59
            assert await other.next_turn("c.test") == ""
            other.world.clocks.pass_(2)
            assert other.turn("c.test") == "max_seconds"

    asyncio.run(main())


@pytest.mark.parametrize("lost", ["answers", "data"])
def test_a_register_that_fails_lets_no_more_pages_through(lost: str) -> None:
    async def main() -> None:
        keys = MemoryKeys()
        one = Node("one", keys)
        async with one.running():
            assert await one.fetch_until_refused("a.test", 8) == 8
            keys.answers = lost == "data"
            if lost == "answers":
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await one.next_turn("a.test")
        one.world.commit()
        if lost == "data":
            keys.values.clear()
        keys.answers = True
        async with one.running():
            assert await one.fetch_until_refused("a.test") == 12
        assert taken(keys) == [20]

    asyncio.run(main())


def test_what_was_fetched_without_grants_counts() -> None:
    """The nodes counted for themselves before."""

    async def main() -> None:
        keys = MemoryKeys()
        one, other = Node("one", keys), Node("other", keys)
        for _ in range(6):
            one.end(one.begin("a.test"))
        async with one.running(), other.running():
            assert await one.fetch_until_refused("a.test", 1) == 1
            assert await other.fetch_until_refused("a.test") == 13

    asyncio.run(main())
