"""Crawl with stock Scrapy: JOBDIR, LinkExtractor, robots.txt. The last line printed is the number
of pages parsed.

Arguments: seeds file, pages, job folder, concurrency. A fifth argument, a Redis URL, puts requests
and fingerprints into scrapy-redis. The settings are those that Scrapy's documentation recommends
for broad crawls.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import CloseSpider
from scrapy.linkextractors import LinkExtractor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

SETTINGS: dict[str, Any] = {
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
    "ROBOTSTXT_OBEY": True,
    "DOWNLOAD_DELAY": 0,
    "COOKIES_ENABLED": False,
    "RETRY_ENABLED": False,
    "LOG_LEVEL": "INFO",
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
}


class Links(scrapy.Spider):
    name = "links"

    def __init__(self, seeds: str, pages: int):
        super().__init__()
        self._seeds = seeds
        self._pages = pages
        self._done = 0
        self._extractor = LinkExtractor()

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for url in Path(self._seeds).read_text().split():
            yield scrapy.Request(url)

    def parse(self, response: scrapy.http.Response) -> Iterator[Any]:
        if not isinstance(response, scrapy.http.TextResponse):
            return
        yield {"url": response.url, "title": response.css("title::text").get()}
        for link in self._extractor.extract_links(response):
            yield scrapy.Request(link.url)
        self._done += 1
        if self._done >= self._pages:
            raise CloseSpider("pages")

    def closed(self, reason: str) -> None:
        print("pages:", self._done)


def main(seeds: str, pages: str, jobdir: str, concurrency: str, redis: str | None = None) -> None:
    settings = {**SETTINGS, "CONCURRENT_REQUESTS": int(concurrency)}
    if redis is None:
        settings["JOBDIR"] = jobdir
    else:
        settings |= {
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
            # Otherwise scrapy-redis empties the queue at the end.
            "SCHEDULER_PERSIST": True,
            "REDIS_URL": redis,
        }
    process = CrawlerProcess(settings)
    process.crawl(Links, seeds=seeds, pages=int(pages))
    process.start()


if __name__ == "__main__":
    main(*sys.argv[1:])
