"""Extension: write the delay of the event loop to the stats."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from scrapy import signals

from krowlspider.crawl.monitoring.loop_lag import Lateness
from krowlspider.crawl.status import figures_wanted

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler


class LoopLag:
    """Runs a timer every 20 ms and records by how many milliseconds it is late.

    A page waits for the event loop as this timer does. So the delay shows both a stalled step and
    a long queue of ready callbacks. The clock of uvloop has whole milliseconds, so a delay of 1 ms
    or less means nothing.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._interval = crawler.settings.getfloat("KROWL_STATUS_INTERVAL")
        self._timer: asyncio.TimerHandle | None = None
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._publish, figures_wanted)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        now = time.monotonic()
        self._late = Lateness(now)
        self._renewal = now + self._interval
        self._plan(now)

    def _plan(self, now: float) -> None:
        # Not call_at(): uvloop's clock stands still during a callback and has whole milliseconds.
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._late.planned - now, self._met)

    def _met(self) -> None:
        now = time.monotonic()
        self._late.met(now)
        if now >= self._renewal:
            self._renewal = now + self._interval
            self._renew()
        self._plan(now)

    def _renew(self) -> None:
        self._publish()
        put, recent = self._crawler.stats.set_value, self._late.renew()
        put("krowl/loop/recent_lag_p99_ms", recent.quantile_ms(990))
        put("krowl/loop/recent_lag_max_ms", recent.max_ms)

    def _publish(self) -> None:
        if self._timer is None:
            return
        put, whole = self._crawler.stats.set_value, self._late.whole
        put("krowl/loop/lag_p50_ms", whole.quantile_ms(500))
        put("krowl/loop/lag_p99_ms", whole.quantile_ms(990))
        put("krowl/loop/lag_p999_ms", whole.quantile_ms(999))
        put("krowl/loop/lag_max_ms", whole.max_ms)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._publish()
