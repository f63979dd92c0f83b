"""Extension: exclude the URLs that KROWL_EXCLUDE names, as its file has them at any time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured

from krowlspider.engine.scheduler import Scheduler
from krowlspider.job.crawls import crawl_of
from krowlspider.job.exclude_file import ExcludeFile

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

    from krowlspider.urls.seeds import PatternList


class Exclude:
    """Sets the expressions of the intake, and replaces them when the file changes.

    :raises NotConfigured: KROWL_EXCLUDE is not set
    :raises SettingsError: the file cannot be read, or has a bad line
    """

    def __init__(self, crawler: Crawler):
        path = crawler.settings["KROWL_EXCLUDE"]
        if path is None:
            raise NotConfigured
        self._crawler = crawler
        self._file = ExcludeFile(Path(path), self._use)
        self._watch: asyncio.Task[None] | None = None
        # spider_opened comes before the first seed is queued and the first page is popped.
        crawler.signals.connect(self._file.apply, signals.spider_opened)
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _use(self, found: PatternList) -> None:
        Scheduler.of(self._crawler).intake.exclusions = found

    def _start(self) -> None:
        crawl_of(self._crawler).reloads["KROWL_EXCLUDE"] = self._file.reload
        self._watch = asyncio.get_running_loop().create_task(self._file.watch())

    def _stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
