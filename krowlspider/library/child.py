"""The process of one crawl: it takes an order over a socket, and crawls."""

from __future__ import annotations

import gc
import logging
import shutil
from contextlib import suppress
from socket import socket
from typing import Any

from scrapy.crawler import AsyncCrawlerProcess
from scrapy.settings import Settings

from krowlspider.addon import fill_in
from krowlspider.commands.crawl import NOTHING_FETCHED, CrawlOutcome, outcome_of, raise_open_files
from krowlspider.config.log import follow_settings, lower_start_lines
from krowlspider.config.validation import check_mappings, validate
from krowlspider.engine.crawler import HandoverCrawler
from krowlspider.errors import CrawlError, KrowlError, replace_closed_streams
from krowlspider.library.delivery import Delivery, Lines
from krowlspider.library.messages import CrawlEnd, CrawlFault, CrawlOrder, frame, read_order
from krowlspider.library.spider import LibrarySpider

# A library opens no ports, and writes nothing to the terminal. Settings of the program come on top.
_SETTINGS: dict[str, Any] = {
    "ADDONS": {"krowlspider.addon.Krowl": 100},
    "DOWNLOADER": "krowlspider.library.spider.HandoverDownloader",
    "KROWL_PROGRESS": False,
    "LOG_ENABLED": False,
    "PROMETHEUS_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
}


def main(number: int) -> None:
    """Crawl as ordered by the program, over the socket with this file descriptor."""
    replace_closed_streams()
    connection = socket(fileno=number)
    try:
        order = read_order(connection)
    except (EOFError, ConnectionError):
        return
    lines = Lines()
    try:
        end = _crawl(order, Delivery(connection, lines), lines)
    finally:
        if order.temporary:
            shutil.rmtree(order.jobdir, ignore_errors=True)
    # Collecting garbage once more, as the interpreter ends, is slow.
    gc.freeze()
    connection.setblocking(True)
    with suppress(ConnectionError):
        for line in lines.kept:
            connection.sendall(frame(line))
        connection.sendall(frame(end))


def _crawl(order: CrawlOrder, delivery: Delivery, lines: Lines) -> CrawlEnd:
    try:
        settings = _settings_of(order)
    except KrowlError as error:
        return _failed(error)
    lines.setLevel(settings["LOG_LEVEL"])
    logging.root.addHandler(lines)
    raise_open_files()
    process = AsyncCrawlerProcess(settings)
    crawler = HandoverCrawler(LibrarySpider, process.settings)
    arguments = order.arguments if order.file is None else {**order.arguments, "seeds": order.file}
    crawl = process.crawl(crawler, delivery=delivery, lines=order.seeds, **arguments)
    process.start()
    fault = None if crawl.cancelled() or not crawl.done() else crawl.exception()
    if isinstance(fault, KrowlError):
        return _failed(fault)
    outcome = outcome_of(crawler, crawl, has_begun=not process.bootstrap_failed)
    if fault is not None:
        return _failed(CrawlError(f"the crawl could not begin: {outcome.why}"))
    stats = dict(crawler.stats.get_stats())
    return CrawlEnd(_fault(order, outcome, was_left=delivery.was_left), stats)


def _settings_of(order: CrawlOrder) -> Settings:
    """Return the settings of a crawl, checked.

    :raises SettingsError: one is wrong
    """
    lower_start_lines()
    follow_settings()
    settings = Settings()
    settings.setdict(_SETTINGS, priority="project")
    fill_in(settings)
    check_mappings(settings, order.settings)
    settings.setdict({**order.settings, "JOBDIR": order.jobdir}, priority="cmdline")
    validate(settings)
    return settings


def _fault(order: CrawlOrder, outcome: CrawlOutcome, *, was_left: bool) -> CrawlFault | None:
    """Return why a crawl ended before its work was done; None if it did not.

    A crawl that has fetched nothing has ended: its log says why.
    """
    why = outcome.why
    if why == "nothing_to_crawl":
        why = f"nothing to crawl: no URL is queued in {order.jobdir}: give seeds"
    elif why in {"None", "shutdown"} and not was_left:
        why = "the crawl was stopped by a signal"
    elif outcome.code in {0, NOTHING_FETCHED}:
        return None
    return CrawlFault(CrawlError.__name__, why)


def _failed(error: KrowlError) -> CrawlEnd:
    # The program imports no more modules for an error.
    kind = next(each for each in type(error).__mro__ if each.__module__ == KrowlError.__module__)
    return CrawlEnd(CrawlFault(kind.__name__, str(error)), {})
