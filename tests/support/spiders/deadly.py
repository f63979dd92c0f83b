"""A spider one of whose pages kills the process or holds its loop, at a chosen point of the work on
it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import scrapy

from krowlspider.job.crawls import job_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response
    from twisted.python.failure import Failure


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlyPipeline:
    """Dies over the item of the deadly page, in its second step."""

    async def process_item(self, item: Any) -> Any:
        await asyncio.sleep(0)
        if item.get("deadly"):
            die()
        return item


class DeadlySpider(scrapy.Spider):
    """Fetches ``/deadly`` of the first of the given roots, and ``pages`` ordinary pages of each.

    ``way`` names the callback of the deadly page; None makes it a page like the others.
    """

    name = "deadly"
    custom_settings = {"ITEM_PIPELINES": {"tests.support.spiders.deadly.DeadlyPipeline": 1}}

    def __init__(self, roots: str, way: str, pages: str = "4", **kwargs: Any):
        super().__init__(**kwargs)
        self.roots = roots.split()
        self.way = way
        self.pages = int(pages)

    async def start(self) -> AsyncIterator[Any]:
        if self.way == "robots":
            cache = job_of(self.crawler).robots_fetches.cache
            cache._parse = lambda _: sum(range(10**12))
        yield scrapy.Request(
            f"{self.roots[0]}/deadly", getattr(self, self.way), errback=self.errback
        )
        for root in self.roots:
            for page in range(self.pages):
                yield scrapy.Request(f"{root}/{page}")

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        await response.meta["krowl_warc"]
        yield {"url": response.url}

    # --- ways to die ---

    def function(self, response: Response) -> None:
        die()

    def segfault(self, response: Response) -> None:
        ctypes.string_at(0)

    def exit(self, response: Response) -> None:
        sys.exit(7)

    def generator(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        die()

    async def coroutine(self, response: Response) -> list[Any]:
        await asyncio.sleep(0.01)
        die()
        return []

    async def asynchronous(self, response: Response) -> AsyncIterator[Any]:
        yield {"url": response.url}
        await asyncio.sleep(0.01)
        die()

    def pipeline(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "deadly": True}

    def background(self, response: Response) -> None:
        """A task that the page starts, and does not wait for."""
        self.task = asyncio.get_running_loop().create_task(self._later())

    async def _later(self) -> None:
        await asyncio.sleep(0.01)
        die()

    # --- ways to hold the event loop ---

    def loop(self, response: Response) -> None:
        while True:
            pass

    def regex(self, response: Response) -> None:
        re.match(r"(a+)+$", "a" * 60 + "b")

    def locked(self, response: Response) -> None:
        """A call in C that keeps the interpreter to itself, and looks for no signal."""
        mutex = ctypes.create_string_buffer(64)
        for _ in range(2):
            ctypes.PyDLL(None).pthread_mutex_lock(mutex)

    def asleep(self, response: Response) -> None:
        time.sleep(1000)

    def slow(self, response: Response) -> None:
        time.sleep(9)

    def robots(self, response: Response) -> None:
        """No page is: the robots.txt that is read first."""

    def errback(self, failure: Failure) -> None:
        die()
