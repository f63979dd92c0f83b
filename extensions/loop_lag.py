"""Extension: write the delay of the event loop to the stats."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from scrapy import signals

from krowlspider.crawl.job import Job
from krowlspider.crawl.monitoring.loop_lag import INTERVAL, Lateness
from krowlspider.crawl.status import figures_wanted, publish

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler


class LoopLag:
    """Runs a timer every 20 ms and records by how many milliseconds it is late.

    A page waits for the event loop as this timer does. So the delay shows both a stalled step and
    a long queue of ready callbacks.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._stats = crawler.stats
        self._interval = crawler.settings.getfloat("KROWL_STATUS_INTERVAL")
        self._timer: asyncio.TimerHandle | None = None
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._publish, figures_wanted)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        self._late = Lateness(time.monotonic(), self._interval)
        self._call_later = asyncio.get_running_loop().call_later
        self._timer = self._call_later(INTERVAL, self._met)

    def _met(self) -> None:
        now = time.monotonic()
        if figures := self._late.met(now):
            publish(self._stats, figures)
        # Not call_at(): uvloop's clock stands still during a callback and has whole milliseconds.
        self._timer = self._call_later(self._late.planned - now, self._met)

    def _publish(self) -> None:
        if self._timer is None:
            return
        publish(self._stats, self._late.figures())
        if (meters := Job.of(self._crawler).meters) is not None:
            self._late.whole.fill(meters.loop_lag)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._publish()
