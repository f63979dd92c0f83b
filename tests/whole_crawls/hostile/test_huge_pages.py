"""The links of huge pages do not block the event loop for other pages."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from krowlspider.spiders import broad
from krowlspider.spiders.broad import BroadSpider

WORK = 0.004


def test_all_huge_pages_together_have_a_part_of_the_loop() -> None:
    """Four pages of ten batches each: the rest of the time is left to others."""
    handed: list[str] = []

    def discover(urls: list[str]) -> int:
        handed.extend(urls)
        end = time.perf_counter() + WORK
        while time.perf_counter() < end:
            pass
        return len(urls)

    spider: Any = SimpleNamespace(_huge_pages=asyncio.Lock())
    at_once = broad._LINKS_AT_ONCE
    links = [f"http://h{number}.test/" for number in range(10 * at_once)]

    async def main() -> float:
        begun = time.perf_counter()
        await asyncio.gather(
            *(BroadSpider._discover(spider, links, discover, at_once) for _ in range(4))
        )
        return time.perf_counter() - begun

    took = asyncio.run(main())
    assert sorted(handed) == sorted(4 * links)
    assert took > 4 * 9 * WORK * (1 + broad._RESTS)
