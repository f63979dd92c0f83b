"""Work beside a crawl keeps to its share of the event loop, in short steps, by a fake clock."""

from __future__ import annotations

import asyncio

import pytest

from krowlspider.crawl.handover.loop_share import LoopShare, Time


class Loop:
    """A fake loop that wakes ``late`` seconds after each sleep; ``alone`` is the work since."""

    def __init__(self, late: float = 0.0) -> None:
        self.now = self.alone = self.longest = 0.0
        self.late = late

    async def sleep(self, seconds: float) -> None:
        self.now += seconds + self.late
        self.alone = 0.0

    async def work(self, share: LoopShare, steps: int) -> None:
        for _ in range(steps):
            async with share:
                self.now += 0.002
                self.alone += 0.002
                self.longest = max(self.longest, self.alone)
            await asyncio.sleep(0)

    @property
    def time(self) -> Time:
        return Time(lambda: self.now, self.sleep)


@pytest.mark.parametrize("share", [0.1, 0.25, 1.0])
def test_tasks_together_keep_to_their_share(share: float) -> None:
    async def main() -> None:
        loop = Loop()
        working = LoopShare(lambda: share, loop.time)
        await asyncio.gather(loop.work(working, 500), loop.work(working, 500))
        assert 1000 * 0.002 / loop.now == pytest.approx(share, rel=0.05)

    asyncio.run(main())


@pytest.mark.parametrize("late", [0.0, 0.005, 0.022])
def test_work_makes_up_for_rests_that_last_longer(late: float) -> None:
    async def main() -> None:
        loop = Loop(late)
        await loop.work(LoopShare(lambda: 0.25, loop.time), 1000)
        assert 0.23 <= 1000 * 0.002 / loop.now <= 0.26
        # 10 ms, and one step more.
        assert loop.longest < 0.0125

    asyncio.run(main())
