"""Links that were found known lately are left out before they are hashed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.job.test_cluster_traffic import traffic_in

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "http://a.test/page"


def test_each_known_link_is_counted_and_none_is_lost(tmp_path: Path) -> None:
    """A link is new on the first page, found known on the second, and recent from then on. The
    second URL has the identity of the first, so the queue counts it as known on the first page."""

    async def main() -> None:
        job, traffic = traffic_in(tmp_path)
        intake, frontier = traffic._intake, job.frontier
        links = ["http://a.test/1", "http://a.test/1?utm_source=x", "http://b.test/"]
        added = [
            intake.discover(links, depth=1, via="a.test", page=PAGE),
            intake.discover(links, depth=1, via="a.test", page=PAGE),
            intake.discover([*links, "http://a.test/2"], depth=1, via="a.test", page=PAGE),
            intake.discover(links, depth=1, via="a.test", page=PAGE),
        ]
        assert added == [2, 0, 1, 0]
        assert frontier.counters["known"] == 1 + 3 * len(links)
        assert frontier.seen.recent_links.among(links) == set(links)
        assert frontier.queued == 3
        await job.close()

    asyncio.run(main())


def test_a_link_that_is_refused_is_not_known(tmp_path: Path) -> None:
    async def main() -> None:
        job, traffic = traffic_in(tmp_path, URLLENGTH_LIMIT=20)
        refused = ["http://a.test/of-more-characters"]
        for _ in range(3):
            assert not traffic._intake.discover(refused, depth=1, via="a.test", page=PAGE)
        assert not job.frontier.seen.recent_links.among(refused)
        assert not job.frontier.counters["known"]
        await job.close()

    asyncio.run(main())
