"""The log lines of a crawl's start: what the last process left, and the terms of this crawl."""

from __future__ import annotations

import logging
import re
from shlex import quote
from typing import TYPE_CHECKING

from krowlspider.archive.indexes import files_gone
from krowlspider.archive.uploads import uploaded
from krowlspider.config.contact import is_unreachable
from krowlspider.errors import counted, scrapy_with
from krowlspider.frontier.work_mark import POISON_STRIKES, is_poison
from krowlspider.job.status import pause_reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from scrapy.settings import BaseSettings

    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.hosts.host_record import HostHolds
    from krowlspider.job.crawls import Crawl
    from krowlspider.job.job import Job

logger = logging.getLogger(__name__)

# User and password in the URL of a feed.
_USER = re.compile(r"//\S*@")
# Names of missing WARC files that are logged.
_GONE_NAMED = 5
# Formats of feeds whose file is one document, to which nothing can be appended.
_ONE_DOCUMENT = ("json", "xml")


def log_start(job: Job) -> None:
    """Log what the last process left behind, and what is unusual about the job folder."""
    path = job.folder.path
    last = job.last_process
    for entry in last.struck:
        log_strike(entry, path)
    log_holds(last.holds, path)
    if job.folder.temporary:
        logger.warning(
            "No JOBDIR: this crawl is stored in %s; to resume it later, give -s JOBDIR=that folder",
            path,
        )
    if mode := job.folder.open_to_others:
        logger.warning(
            "Others can get into JOBDIR %s, which has mode %s: chmod 700 keeps them out", path, mode
        )
    if last.mended.files:
        logger.log(
            logging.WARNING if last.mended.bytes_cut else logging.INFO,
            "Mended %s of a killed crawl: cut off %s without a whole record",
            counted(last.mended.files, "WARC file"),
            counted(last.mended.bytes_cut, "byte"),
        )
    for damaged in last.mended.damaged:
        logger.error("A WARC file is damaged: it is kept as %s", damaged)
    for salvaged, records in last.mended.salvaged:
        logger.warning("Salvaged %s of it into %s", counted(records, "whole record"), salvaged)
    if (lost := last.lost) is not None:
        logger.error(
            "WARC file %s %s: %s of %s that were on the disk are lost; queued %s again",
            lost.file,
            "is gone" if lost.kept is None else f"is damaged (kept as {lost.kept.name})",
            f"{lost.records:,}",
            counted(lost.synced, "record"),
            counted(lost.urls, "URL"),
        )
    _log_gone(job.archive.directory)


def _log_gone(archive: Path) -> None:
    """Warn of WARC files that are neither in the folder, where their index is, nor uploaded."""
    gone = files_gone(archive)
    if gone:
        stored = uploaded(archive)
        gone = [name for name in gone if name not in stored]
    if gone:
        more = f" and {len(gone) - _GONE_NAMED} more" if len(gone) > _GONE_NAMED else ""
        logger.warning(
            "%s missing in %s, where only the index is: %s%s. Copy back what was"
            " lost; of what you moved for good, move the index too",
            f"{counted(len(gone), 'WARC file')} {'is' if len(gone) == 1 else 'are'}",
            archive,
            ", ".join(gone[:_GONE_NAMED]),
            more,
        )


def log_terms(crawl: Crawl, settings: BaseSettings, spider: str) -> None:
    """Log where the crawl begins, how polite it is, where its results go and how to watch it.

    A spider with a scope logs what it crawls by `log_crawled`, once it has read its seeds.
    """
    job = crawl.job
    logger.info("Job folder: %s, %s", job.folder.path, _state(job))
    logger.info("Politeness: %s", _politeness(job, settings))
    logger.info("Results: %s", _results(job, settings))
    for feed, options in settings.getdict("FEEDS").items():
        if not job.folder.temporary and (fate := _at_next_start(str(feed), options)):
            logger.warning(
                "%s: a later start of this crawl %s; -o FILE.jsonl keeps the items of all starts",
                _USER.sub("//...@", str(feed)),
                fate,
            )
    watch = "; ".join([scrapy_with("frontier", job.folder.path), *crawl.watched_at])
    logger.info("Watch: %s; Ctrl-C stops, the same command continues", watch)
    if job.scope is None:
        log_crawled(job, spider, "from its own start requests")
    if job.is_paused:
        logger.warning("The crawl is %s", pause_reason(crawl))
    if is_unreachable(job.contact):
        logger.warning(
            "KROWL_CONTACT=%s is at a reserved domain: no site owner can reach you there",
            job.contact,
        )


def log_crawled(job: Job, spider: str, source: str) -> None:
    """Log what is crawled: the spider, where its first requests come from, and the scope."""
    scope = ""
    if job.scope is not None:
        since = ""
        if job.replaces_scope:
            since = ", for links of pages fetched from now on; URLs queued before stay queued"
        scope = f"; scope: {job.scope}{since}"
    logger.info("Crawl: spider %s, %s%s", spider, source, scope)


def _state(job: Job) -> str:
    known = len(job.frontier.seen)
    if not known:
        return "new"
    queued = counted(job.frontier.pending, "URL")
    hosts = counted(job.frontier.schedule.host_count, "host")
    return f"continued: {queued} queued on {hosts}, {known:,} known"


def _politeness(job: Job, settings: BaseSettings) -> str:
    rule = job.rule
    most = max(rule.minimum, rule.maximum)
    robots = "obeyed" if settings.getbool("ROBOTSTXT_OBEY") else "ignored (ROBOTSTXT_OBEY)"
    return (
        f"one request at a time to a host, {rule.factor:g} x its latency apart"
        f" ({rule.minimum:g} to {most:g} s){_of_gemini(settings)}; robots.txt {robots}; User-Agent:"
        f" {job.user_agent}"
    )


def _of_gemini(settings: BaseSettings) -> str:
    if not settings.getbool("KROWL_GEMINI"):
        return ""
    return f", to a Gemini server {settings.getfloat('KROWL_GEMINI_DELAY_MIN'):g} s at least"


def _at_next_start(feed: str, options: Mapping[str, object]) -> str:
    """Return what a later start does to a feed, in words; empty if it appends items to it."""
    if "%(" in feed:
        # A file of its own for each start.
        return ""
    if options.get("overwrite"):
        return "overwrites it"
    if options.get("format") in _ONE_DOCUMENT:
        return f"appends a second {options['format']} document, which makes it invalid"
    return ""


def _results(job: Job, settings: BaseSettings) -> str:
    feeds = [_USER.sub("//...@", str(feed)) for feed in settings.getdict("FEEDS")]
    items = f"items in {', '.join(feeds)}" if feeds else "no items (-o FILE.jsonl writes them)"
    if not settings.getbool("KROWL_ARCHIVE"):
        return f"no archive (KROWL_ARCHIVE=False); {items}"
    return f"WARC files and indexes in {job.archive.directory}; {items}"


def log_strike(entry: Entry, folder: Path) -> None:
    """Log the page that the last process was working on when it died."""
    if is_poison(entry):
        logger.warning(
            "%s is set aside: the process has died %d times while it worked on this page."
            ' `scrapy frontier %s --export` shows it as "state": "poison"; --import of that line'
            " queues it again.",
            entry.url,
            entry.strikes,
            quote(str(folder)),
        )
    else:
        logger.warning(
            "The last process died while it worked on %s: strike %d of %d",
            entry.url,
            entry.strikes,
            POISON_STRIKES,
        )


def log_holds(holds: Iterable[HostHolds], folder: Path) -> None:
    """Log each host that is set aside because it held the event loop."""
    for hold in holds:
        if hold.aside:
            logger.warning(
                "%s is set aside for a day: it has held the event loop for over 5 s %d times, the"
                " last with %s. Nothing of it is lost: `scrapy frontier %s --host %s` shows it;"
                " --export and --forget with --import queue it again.",
                hold.host,
                hold.times,
                hold.url or "its queue",
                quote(str(folder)),
                quote(hold.host),
            )
