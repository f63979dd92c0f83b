"""Work beside a crawl keeps to its share of the event loop, in short steps, by a fake clock."""

from __future__ import annotations

import asyncio

import pytest

from krowlspider.job.nodes.receiver import LoopShare, Time


class Loop:
    """A fake loop whose other tasks take ``others`` seconds a turn; ``alone`` is the work since."""

    def __init__(self, others: float) -> None:
        self.now = self.alone = self.longest = 0.0
        self.others = others

    async def sleep(self, seconds: float) -> None:
        self.now += seconds + self.others
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


def share_of(share: float, others: float) -> float:
    """Return the share of the loop that two tasks get together; no step may last too long."""

    async def main() -> float:
        loop = Loop(others)
        working = LoopShare(lambda: share, loop.time)
        await asyncio.gather(loop.work(working, 500), loop.work(working, 500))
        # 10 ms, and one step more.
        assert loop.longest < 0.0125
        return 1000 * 0.002 / loop.now

    return asyncio.run(main())


@pytest.mark.parametrize("others", [0.0005, 0.005, 0.022])
@pytest.mark.parametrize("share", [0.1, 0.25])
def test_tasks_together_keep_to_their_share(share: float, others: float) -> None:
    assert share_of(share, others) == pytest.approx(share, rel=0.1)


@pytest.mark.parametrize("others", [0.0, 0.0001])
def test_idle_loop_gives_all_its_time(others: float) -> None:
    assert share_of(0.25, others) > 0.95


def test_whole_share_lets_other_tasks_run() -> None:
    assert share_of(1.0, 0.005) == pytest.approx(2 / 3, rel=0.1)
