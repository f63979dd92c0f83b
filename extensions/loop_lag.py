"""Extension: write the delay of the event loop to the stats."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from scrapy import signals

from krowlspider.job.crawls import job_of
from krowlspider.job.status import figures_wanted, publish

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from scrapy.crawler import Crawler

    from krowlspider.job.meters import Histogram as Metric


# Seconds between two planned times of the timer.
INTERVAL = 0.02
# Units in a second: the histogram counts steps of 0.1 ms, finer than the clock of any loop.
_UNITS = 10_000
# Longer durations count as 100 s.
_HIGHEST = 100 * _UNITS


def _top(units: int) -> int:
    """Return the most units that are counted together with these: three digits are kept apart."""
    step: int = 10 ** max(0, len(str(units)) - 3)
    return units // step * step + step - 1


class LagHistogram:
    """Counts durations up to 100 s, in 4,600 buckets at most."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._most = 0
        self._sum = 0.0
        self.count = 0

    def record(self, seconds: float) -> None:
        """Count one duration; a negative one counts as 0."""
        units = int(seconds * _UNITS)
        if not 0 <= units <= _HIGHEST:
            units = _HIGHEST if units > 0 else 0
        # Up to three digits all are kept apart.
        self._counts[units if units < 1000 else _top(units)] += 1
        self._most = max(self._most, units)
        self._sum += max(0.0, seconds)
        self.count += 1

    def add(self, other: LagHistogram) -> None:
        """Count all durations of another histogram too."""
        self._counts.update(other._counts)
        self._most = max(self._most, other._most)
        self._sum += other._sum
        self.count += other.count

    def fill(self, metric: Metric) -> None:
        """Give a histogram with fewer buckets the counts of this one."""
        metric.counts[:] = [0] * len(metric.counts)
        for top, count in self._counts.items():
            metric.counts[bisect_left(metric.bounds, top / _UNITS)] += count
        metric.sum = self._sum

    @property
    def max_ms(self) -> float:
        """Return the longest duration in ms, rounded down to 0.1; 0 when nothing was counted."""
        return 1000 * self._most / _UNITS

    def quantile_ms(self, per_mille: int) -> float:
        """Return the ms that ``per_mille`` in a thousand durations did not exceed.

        The value is at most 1/100 too high; it is 0 when nothing was counted. ``per_mille`` is 1 to
        1000: 500 is the median.
        """
        rank = -(-self.count * per_mille // 1000)
        for top, count in sorted(self._counts.items()):
            rank -= count
            if rank <= 0:
                return 1000 * min(top, self._most) / _UNITS
        return 0.0


class Lateness:
    """Records how late a timer is that is planned every INTERVAL, in total and of late.

    A planned time that passes during a stall counts too, with the lateness of the loop at that
    time. Otherwise a stall of ten seconds would count once, like a timer that ran on time.
    ``renewal`` is the seconds after which what is recent begins anew.
    """

    def __init__(self, now: float, renewal: float):
        self.planned = now + INTERVAL
        self.recent = LagHistogram()
        self._before = LagHistogram()
        self._renewal = renewal
        self._renew_at = now + renewal

    def met(self, now: float) -> dict[str, float]:
        """Record that the planned timer has run at ``now``.

        Afterwards ``planned`` is the next time that has not passed. Return the stats to publish:
        all of them when what is recent begins anew, else none.
        """
        late = now - self.planned
        self.recent.record(late)
        self.planned += INTERVAL
        if late >= INTERVAL:
            self._missed(late)
        if now < self._renew_at:
            return {}
        self._renew_at = now + self._renewal
        figures = {
            **self.figures(),
            "krowl/loop/recent_lag_p99_ms": self.recent.quantile_ms(990),
            "krowl/loop/recent_lag_max_ms": self.recent.max_ms,
        }
        self._before, self.recent = self.whole, LagHistogram()
        return figures

    def _missed(self, late: float) -> None:
        """Record the planned times that have passed since the one that was late."""
        passed = int(late / INTERVAL)
        self.planned += passed * INTERVAL
        # A machine that was suspended for a day does not record a day of planned times.
        for missed in range(min(passed, int(_HIGHEST / _UNITS / INTERVAL))):
            self.recent.record(late - (missed + 1) * INTERVAL)

    @property
    def whole(self) -> LagHistogram:
        """Return the histogram of all durations."""
        whole = LagHistogram()
        whole.add(self._before)
        whole.add(self.recent)
        return whole

    def figures(self) -> dict[str, float]:
        """Return the stats of the whole run."""
        whole = self.whole
        return {
            "krowl/loop/lag_p50_ms": whole.quantile_ms(500),
            "krowl/loop/lag_p99_ms": whole.quantile_ms(990),
            "krowl/loop/lag_p999_ms": whole.quantile_ms(999),
            "krowl/loop/lag_max_ms": whole.max_ms,
        }


class LagTimer:
    """Runs the timer of a `Lateness` on the running event loop, from `start` to `stop`.

    ``late`` is None before. ``publish`` gets the stats each ``renewal`` seconds.
    """

    def __init__(self, renewal: float, publish: Callable[[dict[str, float]], None]):
        self.late: Lateness | None = None
        self._renewal = renewal
        self._publish = publish

    def start(self) -> None:
        self.late = Lateness(time.monotonic(), self._renewal)
        self._call_later = asyncio.get_running_loop().call_later
        self._timer = self._call_later(INTERVAL, self._met, self.late)

    def _met(self, late: Lateness) -> None:
        now = time.monotonic()
        if figures := late.met(now):
            self._publish(figures)
        # Not call_at(): uvloop's clock stands still during a callback and has whole milliseconds.
        self._timer = self._call_later(late.planned - now, self._met, late)

    def stop(self) -> None:
        if self.late is not None:
            self._timer.cancel()


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
        if (meters := job_of(self._crawler).meters) is not None:
            late.whole.fill(meters.loop_lag)

    def _stop(self) -> None:
        self._timer.stop()
        self._show()
