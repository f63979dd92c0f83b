"""The broad spider of a program, and the downloader that waits for the program."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from scrapy import signals

from krowlspider.engine.downloader import Downloader
from krowlspider.frontier.seed_table import SeedLine
from krowlspider.job.answers.retries import TRUNCATED
from krowlspider.library.page import Page, Record
from krowlspider.spiders.broad import BroadSpider, type_of
from krowlspider.spiders.seeds import SeedList
from krowlspider.urls.seeds import parse_seed, split_words, without_credentials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings

    from krowlspider.library.delivery import Delivery
    from krowlspider.urls.page.links import ReadPage


class GivenSeeds(SeedList):
    """The seeds of a program, one a line. They were checked there."""

    source = name = "the program"

    def __init__(self, lines: list[str]):
        self._parts = lines
        self._lines = []
        for number, line in enumerate(lines, 1):
            if (seed := parse_seed(line.encode(errors="surrogateescape"))) is not None:
                text = without_credentials(split_words(line)[0].strip())
                self._lines.append(
                    SeedLine(number, text, seed.url, bare=seed.bare, words=seed.words)
                )
        self.good = len(self._lines)
        self.has_words = any(line.words for line in self._lines)


class LibrarySpider(BroadSpider):
    """Hands each page over to the program. A page is done once the program has taken it."""

    name = BroadSpider.name

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        # It yields no requests, so it needs no more middlewares than the broad spider.
        BroadSpider.update_settings(settings)

    def __init__(self, *, delivery: Delivery, lines: list[str], **arguments: Any):
        super().__init__(**arguments)
        self.delivery = delivery
        if lines:
            self._seeds = GivenSeeds(lines)

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.delivery.close, signals.engine_stopped)
        return spider

    async def start(self) -> AsyncIterator[Any]:
        self.delivery.begin(self.crawler.stats.get_stats, self._stop)
        async for each in super().start():
            yield each

    def _stop(self) -> None:
        self._stopping = asyncio.ensure_future(self.crawler.stop_async())

    async def parse(self, response: Response) -> AsyncIterator[dict[str, Any]]:
        read = await self.read(response)
        item = None if read is None else await self.item_of(read, response)
        if read is None or item is None:
            return
        assert response.request is not None
        in_flight = self.scheduler.flights.get(response.request)
        taken = False
        try:
            taken = await self.delivery.give(page_of(item, read, response))
        finally:
            if not taken and in_flight is not None:
                in_flight.stays = True
        if taken:
            yield item


def page_of(item: dict[str, Any], read: ReadPage, response: Response) -> Page:
    """Return the page for the program, of what was read and of its item."""
    kind = type_of(response)
    file = item["warc_file"]
    return Page(
        url=response.url,
        status=response.status,
        headers={
            name.decode("latin-1").lower(): b", ".join(values).decode("latin-1")
            for name, values in response.headers.items()
        },
        body=response.body,
        media_type=kind.essence,
        charset=kind.charset,
        fetched=datetime.now(UTC),
        depth=item["depth"],
        title=read.title,
        lang=read.lang,
        links=read.links,
        canonical=read.canonical,
        noindex=read.noindex,
        redirected_from=item.get("redirected_from", []),
        seed=item.get("seed"),
        tag=item.get("tag"),
        record=file and Record(file, item["warc_offset"], item["warc_record_id"]),
        truncated=TRUNCATED in item,
    )


class HandoverDownloader(Downloader):
    """Sends no more requests while CONCURRENT_REQUESTS of them are under way, from the pop until
    the program has taken the page."""

    def needs_backout(self) -> bool:
        return len(self._scheduler.flights) >= self.total_concurrency or super().needs_backout()
