"""Extension: send notices to KROWL_NOTIFY: the end of the crawl, and what holds it up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call, run_in_thread

from krowlspider.crawl.crawls import crawl_of
from krowlspider.crawl.monitoring.notices import Condition, Event, Sender, Watch
from krowlspider.crawl.status import pause_reason
from krowlspider.engine.scheduler import Scheduler
from krowlspider.frontier.admin.words import counted

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable
    from typing import Self

    from scrapy.crawler import Crawler

    from krowlspider.crawl.crawls import Crawl


# Seconds between two looks, and seconds that the end of the crawl waits for the last notice.
INTERVAL = 2.0
_LAST = 4.0


class Notify:
    """Looks at the crawl every two seconds, and sends a notice of each event.

    :raises NotConfigured: KROWL_NOTIFY is not set
    """

    def __init__(self, crawler: Crawler):
        if not crawler.settings["KROWL_NOTIFY"]:
            raise NotConfigured
        self._crawler = crawler
        self._notifier: Notifier | None = None
        crawler.signals.connect(self._start, signals.engine_started)
        # After the scheduler's close: nothing more is fetched or lost.
        crawler.signals.connect(self._finish, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        settings, stats = self._crawler.settings, self._crawler.stats
        self._notifier = Notifier(
            crawl_of(self._crawler),
            settings["KROWL_NOTIFY"],
            counted=Scheduler.of(self._crawler).counted,
            ended=lambda: stats.get_value("downloader/request_count", 0),
        )
        self._call = create_looping_call(self._notifier.look)
        self._call.start(INTERVAL, now=False)

    async def _finish(self, reason: str) -> None:
        if self._notifier is None:
            return
        self._call.stop()
        self._notifier.end(reason)
        await run_in_thread(self._notifier.close)


class Notifier:
    """Sends notices of an open job to ``target``, as `Sender`.

    ``counted`` returns what the frontier has counted since the start, and ``ended`` the number of
    requests that have ended.
    """

    def __init__(
        self,
        crawl: Crawl,
        target: str,
        *,
        counted: Callable[[], Counter[str]],
        ended: Callable[[], int],
    ):
        self._crawl = crawl
        self._job = crawl.job
        self._sender = Sender(target)
        self._watch = Watch(crawl.job.monotonic())
        self._counted = counted
        self._ended = ended

    def look(self) -> None:
        """Send a notice of each event that has begun. Call it every `INTERVAL` seconds."""
        job, node = self._job, self._crawl.node
        found = Condition(
            ended=self._ended(),
            due=job.frontier.schedule.count_due(),
            paused=pause_reason(self._crawl),
            full=job.full,
            outage=job.outages.what if job.outages.is_out else "",
            dead=node.dead_nodes if node is not None and node.running else frozenset(),
        )
        for event in self._watch.look(job.monotonic(), found):
            self._send(event)

    def end(self, reason: str) -> None:
        """Send the last notice: the crawl has ended for a reason."""
        job = self._job
        left = job.frontier.pending
        message = f"{job.spider} has ended ({reason}), with {counted(left, 'URL')} left"
        is_finished = reason == "finished" and job.failure is None
        self._send(Event("finished" if is_finished else "stopped", message))

    def close(self) -> None:
        """Wait some seconds for the notices under way. This blocks: call it in a thread."""
        self._sender.close(_LAST)

    def _send(self, event: Event) -> None:
        job, counted = self._job, self._counted()
        figures: dict[str, Any] = {
            "seconds": round(job.wall() - job.began),
            "done": counted["done"],
            "dropped": sum(n for name, n in counted.items() if name.startswith("dropped/")),
            "queued": job.frontier.queued,
            "hosts": job.frontier.schedule.host_count,
        }
        crawl = {"spider": job.spider, "folder": str(job.folder.path)}
        if (node := self._crawl.node) is not None:
            crawl["node"] = node.own
        notice = {"event": event.name, "message": event.message, "time": round(job.wall())}
        self._sender.send({**notice, "crawl": crawl, "figures": figures})
