"""Extension: write the delay of the event loop to the stats."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scrapy import signals

from krowlspider.crawl.job import Job
from krowlspider.crawl.monitoring.loop_lag import LagTimer
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
        self._publish = partial(publish, crawler.stats)
        self._timer = LagTimer(crawler.settings.getfloat("KROWL_STATUS_INTERVAL"), self._publish)
        crawler.signals.connect(self._timer.start, signals.engine_started)
        crawler.signals.connect(self._show, figures_wanted)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _show(self) -> None:
        if (late := self._timer.late) is None:
            return
        self._publish(late.figures())
        if (meters := Job.of(self._crawler).meters) is not None:
            late.whole.fill(meters.loop_lag)

    def _stop(self) -> None:
        self._timer.stop()
        self._show()
