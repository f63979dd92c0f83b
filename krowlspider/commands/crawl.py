"""``scrapy crawl``: as Scrapy's, but a mistake is told in one line and the exit code says how it ended."""

from __future__ import annotations

import gc
import logging
import resource
import sys
from typing import TYPE_CHECKING

from scrapy.commands.crawl import Command as CrawlCommand
from scrapy.spiderloader import get_spider_loader

from krowlspider.cluster.membership import ClusterError
from krowlspider.errors import KrowlError, SettingsError, for_want_of_room, told
from krowlspider.frontier.repair import way_out
from krowlspider.job import Job
from krowlspider.validation import validate

if TYPE_CHECKING:
    import argparse
    import asyncio

logger = logging.getLogger(__name__)

# Exit codes: the caller can tell a mistake in the input from a disk that is full.
BAD_INPUT = 2
STORAGE_FAILED = 3
# Of a crawl that has ended by itself; start_error is what Scrapy says when the spider's start() has raised.
_OF_REASON = {"start_error": 1, "nothing_to_crawl": BAD_INPUT}


class Command(CrawlCommand):
    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        super().process_options(args, opts)
        assert self.settings is not None
        try:
            validate(self.settings)
            self._check(args)
        except KrowlError as error:
            print(f"krowlspider: {error}", file=sys.stderr)
            sys.exit(BAD_INPUT)

    def _check(self, args: list[str]) -> None:
        """:raises SettingsError: the arguments are not the name of one spider"""
        assert self.settings is not None
        names = sorted(get_spider_loader(self.settings).list())
        if not args:
            raise SettingsError(
                f"give the name of a spider ({', '.join(names)}): scrapy crawl broad"
            )
        if args[0] not in names:
            raise SettingsError(f"there is no spider {args[0]!r}; there are {', '.join(names)}")
        if len(args) > 1:
            raise SettingsError(
                f"{args[1]!r} is not an option of scrapy crawl; spider arguments are -a name=value"
            )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        assert self.crawler_process
        _raise_open_files()
        crawler = self.crawler_process.create_crawler(args[0])
        crawl: asyncio.Task[None] = self.crawler_process.crawl(crawler, **opts.spargs)  # type: ignore[assignment]
        self.crawler_process.start()
        # The interpreter looks for cyclic garbage once more as it ends, among all there is: 0.3 s after a small crawl.
        gc.freeze()
        error = crawl.exception() if crawl.done() and not crawl.cancelled() else None
        if isinstance(error, KrowlError):
            print(f"krowlspider: {error}", file=sys.stderr)
            self.exitcode = STORAGE_FAILED if for_want_of_room(error) else BAD_INPUT
        elif error is not None:
            logger.critical("The crawl could not begin", exc_info=error)
            self.exitcode = 1
        elif self.crawler_process.bootstrap_failed:
            self.exitcode = 1
        elif isinstance(failure := Job.of(crawler).failure, ClusterError):
            print(f"krowlspider: {failure}", file=sys.stderr)
            self.exitcode = BAD_INPUT
        elif failure is not None:
            way = way_out(failure, Job.of(crawler).folder.path)
            why = told(failure)
            print(f"krowlspider: the crawl could not be kept on disk: {why}{way}", file=sys.stderr)
            self.exitcode = STORAGE_FAILED
        else:
            reason = crawler.stats.get_value("finish_reason")
            self.exitcode = _OF_REASON.get(reason, self.exitcode)


def _raise_open_files() -> None:
    """Take as many open files as the machine allows: each connection is one, and 1,024 is the usual soft limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
