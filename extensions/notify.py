"""Extension: send notices to KROWL_NOTIFY: the end of the crawl, and what holds it up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call, run_in_thread

from krowlspider.crawl.job import Job
from krowlspider.crawl.notices.events import Condition, Event, Watch
from krowlspider.crawl.notices.sender import Sender
from krowlspider.crawl.status import pause_reason
from krowlspider.engine.scheduler import Scheduler

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Spider
    from scrapy.crawler import Crawler

# Seconds between two looks, and seconds that the end of the crawl waits for the last notice.
_INTERVAL = 2.0
_LAST = 4.0


class Notify:
    """Looks at the crawl every two seconds, and sends a notice of each event.

    :raises NotConfigured: KROWL_NOTIFY is not set
    """

    def __init__(self, crawler: Crawler):
        settings = crawler.settings
        if not (target := settings["KROWL_NOTIFY"]):
            raise NotConfigured
        self._crawler = crawler
        self._job = job = Job.of(crawler)
        self._target: str = target
        self._sender: Sender | None = None
        self._watch = Watch(job.monotonic(), 60 * settings.getfloat("KROWL_NOTIFY_STALLED"))
        self._call = create_looping_call(self._look)
        crawler.signals.connect(self._start, signals.engine_started)
        # After the scheduler's close: nothing more is fetched or lost.
        crawler.signals.connect(self._finish, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        self._sender = Sender(self._target)
        self._call.start(_INTERVAL, now=False)

    def _look(self) -> None:
        job, stats = self._job, self._crawler.stats
        node = job.node
        found = Condition(
            ended=stats.get_value("downloader/request_count", 0),
            due=job.frontier.schedule.count_due(),
            paused=pause_reason(job),
            full=job.full,
            is_offline=job.outages.paused,
            dead=node.dead if node is not None and node.running else frozenset(),
        )
        for event in self._watch.look(job.monotonic(), found):
            self._send(event)

    def _send(self, event: Event) -> None:
        job = self._job
        counted = Scheduler.of(self._crawler).counted()
        figures: dict[str, Any] = {
            "seconds": round(job.wall() - job.began),
            "done": counted["done"],
            "dropped": sum(n for name, n in counted.items() if name.startswith("dropped/")),
            "queued": job.frontier.queued,
            "hosts": job.frontier.schedule.host_count,
        }
        crawl = {"spider": job.spider, "folder": str(job.folder.path)}
        if job.node is not None:
            crawl["node"] = job.node.own
        notice = {"event": event.name, "message": event.message, "time": round(job.wall())}
        assert self._sender is not None
        self._sender.send({**notice, "crawl": crawl, "figures": figures})

    async def _finish(self, spider: Spider, reason: str) -> None:
        if self._sender is None:
            return
        if self._call.running:
            self._call.stop()
        left = self._job.frontier.pending
        message = f"{spider.name} has ended ({reason}), with {left:,} URLs left"
        is_finished = reason == "finished" and self._job.failure is None
        self._send(Event("finished" if is_finished else "stopped", message))
        await run_in_thread(self._sender.close, _LAST)
