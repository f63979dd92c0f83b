"""``scrapy crawl`` with one-line errors, and an exit code that shows how the crawl ended."""

from __future__ import annotations

import gc
import logging
import resource
import signal
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, cast

from scrapy.commands.crawl import Command as CrawlCommand
from scrapy.spiderloader import get_spider_loader
from scrapy.utils.log import configure_logging

from krowlspider.addon import fill_in, has_frontier
from krowlspider.cluster.membership import ClusterError, StopSignalError
from krowlspider.config.guarantees import unloadable
from krowlspider.config.log import follow_settings, lower_start_lines, name_spider
from krowlspider.config.validation import check_mappings, validate
from krowlspider.engine.crawler import HandoverCrawler
from krowlspider.errors import KrowlError, SettingsError, counted, error_text, for_want_of_room
from krowlspider.frontier.admin.repair import way_out
from krowlspider.job.crawls import Crawl, opened_crawl
from krowlspider.job.monitoring.hangup import Hangup

if TYPE_CHECKING:
    import argparse
    import asyncio
    from collections.abc import Iterator

    from scrapy import Spider
    from scrapy.commands import ScrapyCommand
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings
    from scrapy.spiderloader import SpiderLoaderProtocol


logger = logging.getLogger(__name__)

# Exit codes: they distinguish bad input, failed storage, a crawl without a page, a start under the
# cluster signal STOP, a node that left before all its URLs were handed over, and a crawl whose WARC
# files were not all uploaded.
BAD_INPUT = 2
STORAGE_FAILED = 3
NOTHING_FETCHED = 4
STOPPED = 5
NOT_HANDED_OVER = 6
NOT_UPLOADED = 7
# The stat of Scrapy that counts feeds it could not store, without the kind of store.
_FEED_FAILED = "feedexport/failed_count/"
# Exit codes by finish reason. Scrapy's reason is start_error if the spider's start() raised.
_OF_REASON = {"start_error": 1, "nothing_to_crawl": BAD_INPUT}
# The settings of the log file and of its lines.
_LOG_FILE = (
    *("LOG_FILE", "LOG_FILE_APPEND", "LOG_ENCODING", "LOG_FORMAT", "LOG_DATEFORMAT"),
    *("KROWL_LOG_FORMAT", "KROWL_NODE_ID", "JOBDIR"),
)

# Seconds from SIGHUP to the stop. systemd sends it together with SIGTERM, and a second signal to
# stop would force an unclean end.
_AFTER_HANGUP = 0.5


class Command(CrawlCommand):
    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        assert self.settings is not None
        with checked_start(self.settings, opts):
            super().process_options(args, opts)
            use_add_on(self.settings)
            self._check(args, opts)

    def _check(self, args: list[str], opts: argparse.Namespace) -> None:
        """Check that the arguments are the name of a spider, and its settings.

        :raises SettingsError: they are not, or a setting of the spider is wrong
        """
        assert self.settings is not None
        loader = loaded_spiders(self.settings)
        names = sorted(loader.list())
        if not args:
            raise SettingsError(
                f"give the name of a spider ({', '.join(names)}): scrapy crawl {names[0]}"
            )
        check_spider(args[0], names)
        if len(args) > 1:
            raise SettingsError(
                f"{args[1]!r} is not an option of scrapy crawl; spider arguments are -a name=value"
            )
        # A spider may take away the add-on that would check them.
        settings, spider = self.settings.copy(), loader.load(args[0])
        check_mappings(settings, spider.custom_settings or {})
        spider.update_settings(settings)
        validate(settings)
        name_spider(settings, args[0])

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        run_crawl(self, args[0], opts.spargs)


def loaded_spiders(settings: BaseSettings) -> SpiderLoaderProtocol:
    """Return the spiders of SPIDER_MODULES.

    :raises SettingsError: there is no such module
    """
    try:
        return get_spider_loader(settings)
    except ModuleNotFoundError as error:
        modules = settings.getlist("SPIDER_MODULES")
        # If a spider's own import failed, the traceback shows the place.
        if not any(f"{module}.".startswith(f"{error.name}.") for module in modules):
            raise
        raise SettingsError(
            f"SPIDER_MODULES={','.join(modules)}: there is no module {error.name!r}"
        ) from error


def check_spider(name: str, names: list[str]) -> None:
    """:raises SettingsError: ``name`` is none of the spiders' ``names``"""
    if name not in names:
        raise SettingsError(f"there is no spider {name!r}: give one of these: {', '.join(names)}")


@contextmanager
def _pid_file_named(opts: argparse.Namespace) -> Iterator[None]:
    """:raises SettingsError: the file of --pidfile could not be written in the ``with`` block"""
    try:
        yield
    except OSError as error:
        if opts.pidfile is None or str(error.filename) != opts.pidfile:
            raise
        raise SettingsError(
            f"--pidfile {opts.pidfile} cannot be written: {error.strerror}"
        ) from error


@contextmanager
def one_line_errors(opts: argparse.Namespace) -> Iterator[None]:
    """For an error of the input in the ``with`` block, print one line, and exit."""
    try:
        with _pid_file_named(opts):
            yield
    except SettingsError as error:
        print(f"krowlspider: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)


@contextmanager
def checked_start(settings: BaseSettings, opts: argparse.Namespace) -> Iterator[None]:
    """Check the settings given as text. For an error of the input in the ``with`` block, print one
    line, write it to the log file, and exit."""
    lower_start_lines()
    follow_settings()
    try:
        given = (word.partition("=") for word in opts.set)
        check_mappings(settings, {name: value for name, _, value in given})
        with _pid_file_named(opts):
            yield
    except KrowlError as error:
        print(f"krowlspider: {error}", file=sys.stderr)
        if settings["LOG_FILE"]:
            # Scrapy opens the log later. If the file cannot be written, the line above is left.
            with suppress(OSError):
                configure_logging({name: settings[name] for name in _LOG_FILE})
                log_exit(settings, BAD_INPUT, str(error))
        sys.exit(BAD_INPUT)


def use_add_on(settings: BaseSettings) -> None:
    """Set what the add-on of the project sets, once the options of the command are read.

    :raises SettingsError: it has no frontier
    """
    if not has_frontier(settings):
        raise SettingsError(
            "KrowlArchive has no frontier, so that the crawls are Scrapy's own: remove"
            " COMMANDS_MODULE=krowlspider.commands, or take another add-on"
        )
    fill_in(settings)


def run_crawl(command: ScrapyCommand, spider: str | type[Spider], spargs: dict[str, str]) -> None:
    """Run a crawl to its end; report why it ended early, and set the command's exit code."""
    process = command.crawler_process
    assert process
    raise_open_files()
    spider_class = process.spider_loader.load(spider) if isinstance(spider, str) else spider
    crawler = HandoverCrawler(spider_class, process.settings)
    crawl = cast("asyncio.Task[None]", process.crawl(crawler, **spargs))
    _obey_hangup(crawler)
    process.start()
    # The interpreter collects cyclic garbage once more as it exits, which is slow here.
    gc.freeze()
    outcome = outcome_of(crawler, crawl, has_begun=not process.bootstrap_failed)
    command.exitcode = outcome.code
    if outcome.is_news:
        print(f"krowlspider: {outcome.why}", file=sys.stderr)
    if outcome.code:
        log_exit(crawler.settings, outcome.code, outcome.why)


def log_exit(settings: BaseSettings, code: int, why: str) -> None:
    """Log the exit code and the reason if there is a log file: scrapyd does not show them."""
    if settings["LOG_FILE"]:
        logger.critical("The crawl failed with exit code %d: %s", code, why)


class CrawlOutcome(NamedTuple):
    """How a crawl has ended: its exit code, and why. ``is_news``: nothing else says why."""

    code: int
    why: str
    is_news: bool = True


def outcome_of(crawler: Crawler, crawl: asyncio.Task[None], *, has_begun: bool) -> CrawlOutcome:
    """Return how a crawl has ended; ``crawl`` is the task that has run it."""
    error = crawl.exception() if crawl.done() and not crawl.cancelled() else None
    if error is None and not has_begun:
        return CrawlOutcome(1, "it could not begin", is_news=False)
    if isinstance(error, KrowlError):
        return CrawlOutcome(STORAGE_FAILED if for_want_of_room(error) else BAD_INPUT, str(error))
    if error is not None and (fault := unloadable(crawler.settings, error)):
        return CrawlOutcome(BAD_INPUT, fault)
    if error is not None:
        logger.critical("The crawl could not begin", exc_info=error)
        return CrawlOutcome(1, repr(error), is_news=False)
    opened = opened_crawl(crawler)
    if opened is not None and (outcome := _outcome_of_job(opened, crawler.settings)):
        return outcome
    stats = crawler.stats.get_stats().items()
    if lost := sum(count for name, count in stats if name.startswith(_FEED_FAILED)):
        why = f"{counted(lost, 'feed')} not stored: the log says why; the pages are in the archive"
        return CrawlOutcome(NOT_UPLOADED, why)
    reason = crawler.stats.get_value("finish_reason")
    if reason is None:
        # A signal came before the crawl was open, or a second one while it stopped.
        logger.warning("The crawl was cut short: the same command continues it")
    return CrawlOutcome(_OF_REASON.get(reason, 0), str(reason), is_news=False)


def _outcome_of_job(crawl: Crawl, settings: BaseSettings) -> CrawlOutcome | None:
    """Return the outcome that job and node decide; None if they decide none."""
    job, node = crawl.job, crawl.node
    failure = job.failure
    if isinstance(failure, ClusterError):
        return CrawlOutcome(
            STOPPED if isinstance(failure, StopSignalError) else BAD_INPUT, str(failure)
        )
    if failure is not None:
        way = way_out(failure, job.folder.path)
        why = f"the crawl could not be saved to disk: {error_text(failure)}{way}"
        return CrawlOutcome(STORAGE_FAILED, why)
    if job.stop_reason:
        return CrawlOutcome(BAD_INPUT, job.stop_reason)
    if crawl.nothing_fetched:
        return CrawlOutcome(NOTHING_FETCHED, "no page was fetched", is_news=False)
    if node is not None and node.not_handed_over:
        why = f"not handed over: {counted(node.not_handed_over, 'URL')}; start this node again"
        return CrawlOutcome(NOT_HANDED_OVER, why)
    if left := crawl.not_uploaded:
        url = settings["KROWL_WARC_UPLOAD"]
        why = (
            f"{counted(left, 'file')} not uploaded to {url}: scrapy warc upload sends what is left"
        )
        return CrawlOutcome(NOT_UPLOADED, why)
    return None


def raise_open_files() -> None:
    """Raise the soft limit of open files to the hard limit.

    Each connection is an open file, and the usual soft limit is only 1,024.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _obey_hangup(crawler: Crawler) -> None:
    """Make SIGHUP stop a crawl as SIGTERM does, once; under nohup it stays ignored.

    With KROWL_POLICIES it has the files of settings read again instead, as in other services,
    unless the terminal or the supervisor that the crawl was started from is gone.
    """
    hangup, is_stopping = Hangup(), False

    def reload() -> None:
        if crawler.crawling and (crawl := opened_crawl(crawler)) is not None:
            logger.info("SIGHUP received: reading %s again", ", ".join(crawl.reloads))
            for read_again in crawl.reloads.values():
                read_again()

    def stop() -> None:
        nonlocal is_stopping
        # A second SIGHUP may have come before it was ignored.
        if crawler.crawling and not is_stopping:
            is_stopping = True
            logger.info("SIGHUP received: the terminal or the session has ended")
            signal.raise_signal(signal.SIGTERM)

    def hang_up(*_: object) -> None:
        from twisted.internet import reactor

        if crawler.settings["KROWL_POLICIES"] is not None and hangup.is_order():
            reactor.callFromThread(reload)
            return
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        reactor.callFromThread(reactor.callLater, _AFTER_HANGUP, stop)

    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, hang_up)
