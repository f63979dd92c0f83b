"""``scrapy crawl``: as Scrapy's, but a mistake is told in one line and the exit code says how it ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scrapy.commands.crawl import Command as CrawlCommand
from scrapy.exceptions import UsageError

from krowlspider.errors import KrowlError
from krowlspider.validation import validate

if TYPE_CHECKING:
    import argparse
    import asyncio

# Exit codes: the caller can tell a mistake in the input from a disk that is full.
BAD_INPUT = 2
ARCHIVE_FAILED = 3


class Command(CrawlCommand):
    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        super().process_options(args, opts)
        assert self.settings is not None
        try:
            validate(self.settings)
        except KrowlError as error:
            print(f"krowlspider: {error}", file=sys.stderr)
            sys.exit(BAD_INPUT)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if len(args) != 1:
            raise UsageError("give the name of one spider, for example: scrapy crawl broad")
        assert self.crawler_process
        crawler = self.crawler_process.create_crawler(args[0])
        crawl: asyncio.Task[None] = self.crawler_process.crawl(crawler, **opts.spargs)  # type: ignore[assignment]
        self.crawler_process.start()
        error = crawl.exception() if crawl.done() and not crawl.cancelled() else None
        if isinstance(error, KrowlError):
            print(f"krowlspider: {error}", file=sys.stderr)
            self.exitcode = BAD_INPUT
        elif self.crawler_process.bootstrap_failed:
            self.exitcode = 1
        elif crawler.stats.get_value("finish_reason") == "archive_error":
            self.exitcode = ARCHIVE_FAILED
