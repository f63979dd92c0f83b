"""Scrapy's own ways to crawl from a program, with the add-on, in an empty folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.library.test_examples import program
from tests.library.webs import REACHING, asked, small_web, urls_of
from tests.support.archived import valid_records
from tests.support.crawling import CONTACT

if TYPE_CHECKING:
    from pathlib import Path

_SPIDER = """
from scrapy import Spider

class Follower(Spider):
    name = "follower"

    def parse(self, response):
        yield {{"url": response.url}}
        yield from response.follow_all(css="a")

SETTINGS = {{
    "ADDONS": {{"krowlspider.addon.Krowl": 100}},
    "KROWL_CONTACT": {contact!r},
    "JOBDIR": "job",
    **{settings!r},
}}
ARGUMENTS = {{"start_urls": [{seed!r}]}}
"""
_PROCESS = """
from scrapy.crawler import {0}

process = {0}(SETTINGS)
process.crawl(Follower, **ARGUMENTS)
process.start()
"""
_RUNNER = """
from scrapy.utils.reactor import install_reactor

install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor", "uvloop.Loop")

from scrapy.crawler import CrawlerRunner
from twisted.internet import reactor

crawl = CrawlerRunner(SETTINGS).crawl(Follower, **ARGUMENTS)
crawl.addBoth(lambda _: reactor.stop())
reactor.run()
"""
# In a loop that runs already.
_ASYNC_RUNNER = """
import asyncio

from scrapy.crawler import AsyncCrawlerRunner
from twisted.internet import asyncioreactor

async def main():
    asyncioreactor.install(asyncio.get_running_loop())
    from twisted.internet import reactor
    reactor.startRunning(installSignalHandlers=False)
    await AsyncCrawlerRunner(SETTINGS).crawl(Follower, **ARGUMENTS)

asyncio.run(main())
"""
WAYS = {
    "CrawlerProcess": _PROCESS.format("CrawlerProcess"),
    "AsyncCrawlerProcess": _PROCESS.format("AsyncCrawlerProcess"),
    "CrawlerRunner": _RUNNER,
    "AsyncCrawlerRunner": _ASYNC_RUNNER,
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_add_on_holds_in_any_folder(tmp_path: Path, way: str) -> None:
    """Each page is asked for once, archived, and known to the next start."""
    with small_web() as web:
        spider = _SPIDER.format(contact=CONTACT, settings=REACHING, seed=web.url("a.test"))
        (tmp_path / "program.py").write_text(spider + WAYS[way])
        for _ in range(2):
            program(tmp_path, "program.py")
        # A start request is asked again by each start.
        assert asked(web) == sorted([web.url("a.test"), *urls_of(web)])
        assert any(entry.path == "/robots.txt" for entry in web.log())
    assert valid_records(tmp_path / "job" / "warc")
