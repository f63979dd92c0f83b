"""A stop of the crawl: a node shrinks first, and a spider that is being closed is waited for."""

from __future__ import annotations

import asyncio
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from scrapy import Spider

from krowlspider.engine.crawler import HandoverCrawler
from krowlspider.engine.scheduler import Scheduler
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import LevelStore
from tests.support.simulated_crawl import SimulatedCrawl

if TYPE_CHECKING:
    from pathlib import Path


class _Engine:
    """An engine at work. ``steps`` has what is done with it."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.running, self.spider = True, object()
        self._slot = SimpleNamespace(closing=None)
        self.scheduler = Scheduler.__new__(Scheduler)
        self.scheduler.shrink = self.shrink  # type: ignore[method-assign]

    async def shrink(self) -> None:
        self.steps.append("shrink")

    async def stop_async(self) -> None:
        self.steps.append("stop")


def crawler_of(engine: Any) -> HandoverCrawler:
    crawler = HandoverCrawler(Spider)
    crawler.crawling, crawler._engine = True, engine
    return crawler


def test_node_shrinks_before_its_engine_stops() -> None:
    engine = _Engine()
    asyncio.run(crawler_of(engine).stop_async())
    assert engine.steps == ["shrink", "stop"]


async def test_stop_waits_for_a_spider_that_is_being_closed() -> None:
    """Scrapy's own stop would cut the close of the job short."""
    engine = _Engine()
    engine._slot.closing = object()
    crawler = crawler_of(engine)
    stop = asyncio.create_task(crawler.stop_async())
    await asyncio.sleep(0)
    assert not engine.steps
    engine.steps.append("closed")
    # As the engine does then.
    await crawler.stop_async()
    await stop
    assert engine.steps == ["closed", "stop"]


class Broken:
    """A component that cannot be built. Scrapy builds it when the job is open."""

    def __init__(self) -> None:
        raise RuntimeError("broken")


def test_a_start_that_fails_closes_its_job(tmp_path: Path) -> None:
    """Otherwise this process still had the folder."""
    settings = {"SPIDER_MIDDLEWARES": f'{{"{__name__}.Broken": 1}}'}
    crawl = SimulatedCrawl(tmp_path / "job", settings=settings).run(code=1)
    assert "The crawl could not begin" in crawl.log
    with closing(LevelStore(crawl.jobdir / "frontier")) as store:
        assert store.get(schema.CLEAN) is not None
