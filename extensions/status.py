"""Extension: log a status line every KROWL_STATUS_INTERVAL seconds, and a summary at the end."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from scrapy import signals

from krowlspider.crawl.job import Job
from krowlspider.crawl.status import LINE, figures_wanted
from krowlspider.engine.scheduler import Scheduler
from krowlspider.errors import lacks_room

if TYPE_CHECKING:
    from collections import Counter
    from typing import Self

    from scrapy import Spider
    from scrapy.crawler import Crawler

    from krowlspider.crawl.nodes.node import Node

logger = logging.getLogger(__name__)

_MB = 1e6


class Status:
    """Writes the progress of the crawl to the log, the stats and the job folder.

    All of them are computed from the same counters.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._job = Job.of(crawler)
        self._interval = crawler.settings.getfloat("KROWL_STATUS_INTERVAL")
        self._task: asyncio.Task[None] | None = None
        self._started = self._last_time = time.monotonic()
        self._last_pages = 0
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._refresh, figures_wanted)
        crawler.signals.connect(self._finish, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        self._started = self._last_time = time.monotonic()
        counted = self._counted()
        self._publish(counted)
        # Written now, as the disk may be full later.
        self._leave(self._figures(counted, 0.0))
        logger.info("User-Agent: %s", self._job.user_agent)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            self._tick()

    def _tick(self) -> None:
        counted = self._counted()
        self._publish(counted)
        now = time.monotonic()
        rate = (counted["done"] - self._last_pages) / (now - self._last_time)
        self._last_time, self._last_pages = now, counted["done"]
        status = self._figures(counted, rate)
        self._leave(status)
        logger.info("%s%s", LINE % status, self._paused())

    def _paused(self) -> str:
        """Return why no request is sent, for the end of the status line; usually empty."""
        if (full := self._job.full) is not None:
            return f" | paused: no room in {full}"
        if self._job.outages.paused:
            return " | paused: no host answers"
        if self._job.memory.keeps_out:
            return " | waits: bodies in memory take KROWL_MEMORY_LIMIT"
        node = self._job.node
        waits = "" if node is None or not node.running else node.waits_for
        return f" | waits {waits}" if waits else ""

    def _figures(self, counted: Counter[str], rate: float) -> dict[str, object]:
        frontier = self._job.frontier
        due = frontier.schedule.count_due()
        return {
            "time": time.time(),
            "pages_per_second": round(rate, 1),
            "done": counted["done"],
            "queued": frontier.queued - frontier.deferred_queued,
            "put_off": frontier.deferred_queued,
            "hosts": frontier.schedule.host_count,
            "due": due,
            "waiting": max(0, frontier.schedule.host_count - due),
            "in_transit": self._scheduler().on_the_wire,
            "dropped": dropped(counted),
            "archive_mb": round(self._job.archive.stats.bytes_written / _MB, 1),
        }

    def _leave(self, status: dict[str, object]) -> None:
        try:
            self._job.folder.write_status(status)
        except OSError as error:
            # The status line reports the pause for a full disk.
            if not lacks_room(error):
                logger.warning("The figures for scrapy frontier cannot be written: %s", error)

    def _scheduler(self) -> Scheduler:
        scheduler = self._crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        return scheduler

    def _counted(self) -> Counter[str]:
        return self._scheduler().counted()

    def _refresh(self) -> None:
        self._publish(self._counted())

    def _publish(self, counted: Counter[str]) -> None:
        put = self._crawler.stats.set_value
        frontier, seen, archive = (
            self._job.frontier,
            self._job.frontier.seen,
            self._job.archive.stats,
        )
        put("scheduler/enqueued", counted["queued"])
        put("dupefilter/filtered", counted["known"])
        put("krowl/frontier/done_count", counted["done"])
        for name, count in counted.items():
            if name.startswith("dropped/"):
                put(f"krowl/frontier/dropped_count/{name.removeprefix('dropped/')}", count)
        put("krowl/frontier/queued", frontier.queued)
        put("krowl/frontier/hosts", frontier.schedule.host_count)
        put("krowl/frontier/due", frontier.schedule.count_due())
        put("krowl/frontier/in_flight", self._scheduler().on_the_wire)
        put("krowl/frontier/deferred", frontier.deferred_queued)
        put("krowl/seen/keys", len(seen))
        put("krowl/seen/layers", seen.filter.layers)
        put("krowl/seen/fill", round(seen.filter.fill, 4))
        put("krowl/seen/expected_losses", seen.expected_losses)
        put("krowl/seen/false_positives_count", seen.false_positives)
        put("krowl/archive/records_count", archive.records)
        put("krowl/archive/revisits_count", archive.revisits)
        put("krowl/archive/bytes_count", archive.bytes_written)
        put("krowl/archive/files_count", archive.files)
        put("krowl/disk/pauses_count", self._job.pauses)
        put("krowl/memory/held_bytes", self._job.memory.held)
        put("krowl/memory/waits_count", self._job.memory.waits)
        put("krowl/politeness/outages_count", self._job.outages.begun)
        names = self._job.names
        put("krowl/dns/question_count", names.questions)
        put("krowl/dns/cached_count", names.cached)
        put("krowl/dns/joined_count", names.joined)
        put("krowl/dns/wait_seconds", round(names.waited, 3))
        for kind, count in names.failures.items():
            put(f"krowl/dns/failed_count/{kind}", count)
        if self._job.node is not None and self._job.node.running:
            self._publish_cluster(self._job.node, counted["foreign"])

    def _publish_cluster(self, node: Node, foreign: int) -> None:
        put = self._crawler.stats.set_value
        put("krowl/frontier/foreign_count", foreign)
        put("krowl/frontier/outbox", self._job.frontier.outbox.depth)
        for name, count in node.counts().items():
            put(f"krowl/cluster/{name}", count)

    def _finish(self, spider: Spider, reason: str) -> None:
        if self._task is not None:
            self._task.cancel()
        # Other extensions write their stats too.
        self._crawler.signals.send_catch_log(figures_wanted)
        counted = self._counted()
        seconds = time.monotonic() - self._started
        logger.info("%s", "\n".join(self._summary(reason, counted, seconds)))

    def _summary(self, reason: str, counted: Counter[str], seconds: float) -> list[str]:
        frontier, archive, folder = self._job.frontier, self._job.archive.stats, self._job.folder
        size = archive.bytes_written / _MB
        stats = self._crawler.stats
        statuses = _by_last_part(stats.get_stats(), "downloader/response_status_count/")
        urls = (
            f"{counted['queued']:,} queued, {counted['known']:,} known already,"
            f" {dropped(counted):,} dropped, {frontier.pending:,} left"
        )
        lines = [
            f"Crawl ended ({reason}) after {seconds:.1f} s",
            f"  pages done   {counted['done']:,} ({counted['done'] / max(seconds, 0.001):.1f}/s)",
            f"  answers      {_listing(statuses)} (robots.txt and retries included)",
            f"  URLs         {urls}",
        ]
        if failures := _by_last_part(stats.get_stats(), "krowl/fetch/failed_count/"):
            lines.append(f"  no answer    {_listing(failures)}")
        if reasons := _by_last_part(counted, "dropped/"):
            lines.append(f"  dropped      {_listing(reasons)}")
        lines += [
            f"  archive      {archive.records:,} records in {archive.files} files, {size:.1f} MB",
            f"  folder       {folder.path}",
        ]
        if (late := stats.get_value("krowl/loop/lag_p99_ms")) is not None:
            worst = stats.get_value("krowl/loop/lag_max_ms")
            lines.append(
                f"  event loop   late by {late:.1f} ms (99 of 100), {worst:.0f} at the worst"
            )
        if frontier.deferred_queued:
            lines.append(
                f"  deferred     {frontier.deferred_queued:,} of the URLs left, because their hosts do not answer:"
                " tried again later; scrapy frontier --host says when"
            )
        if frontier.pending:
            lines.append("  go on with   the same command and JOBDIR")
        return lines


def dropped(counted: Counter[str]) -> int:
    """Return the number of dropped URLs, summed over all reasons."""
    return sum(count for name, count in counted.items() if name.startswith("dropped/"))


def _by_last_part(numbers: dict[str, int], prefix: str) -> dict[str, int]:
    return {
        name.removeprefix(prefix): count
        for name, count in numbers.items()
        if name.startswith(prefix)
    }


def _listing(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in sorted(numbers.items())) or "none"
