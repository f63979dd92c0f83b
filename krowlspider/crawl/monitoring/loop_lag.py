"""Measures how late the event loop runs a timer, in a histogram of fixed size."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krowlspider.crawl.meters import Histogram as Metric

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


class Histogram:
    """Counts durations up to 100 s, in 4,600 buckets at most."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._most = 0
        self._sum = 0.0
        self.count = 0

    def record(self, seconds: float) -> None:
        """Count one duration; a negative one counts as 0."""
        units = min(max(0, int(seconds * _UNITS)), _HIGHEST)
        self._counts[_top(units)] += 1
        self._most = max(self._most, units)
        self._sum += seconds
        self.count += 1

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

    def __init__(self, now: float, renewal: float = inf):
        self.planned = now + INTERVAL
        self.whole = Histogram()
        self.recent = Histogram()
        self._renewal = renewal
        self._renew_at = now + renewal

    def met(self, now: float) -> dict[str, float]:
        """Record that the planned timer has run at ``now``.

        Afterwards ``planned`` is the next time that has not passed. Return the stats to publish:
        all of them when what is recent begins anew, else none.
        """
        late = max(0.0, now - self.planned)
        passed = int(late / INTERVAL)
        self.planned += (passed + 1) * INTERVAL
        # A machine that was suspended for a day does not record a day of planned times.
        for missed in range(min(passed, int(_HIGHEST / _UNITS / INTERVAL)) + 1):
            self.whole.record(late - missed * INTERVAL)
            self.recent.record(late - missed * INTERVAL)
        if now < self._renew_at:
            return {}
        self._renew_at = now + self._renewal
        recent, self.recent = self.recent, Histogram()
        return {
            **self.figures(),
            "krowl/loop/recent_lag_p99_ms": recent.quantile_ms(990),
            "krowl/loop/recent_lag_max_ms": recent.max_ms,
        }

    def figures(self) -> dict[str, float]:
        """Return the stats of the whole run."""
        return {
            "krowl/loop/lag_p50_ms": self.whole.quantile_ms(500),
            "krowl/loop/lag_p99_ms": self.whole.quantile_ms(990),
            "krowl/loop/lag_p999_ms": self.whole.quantile_ms(999),
            "krowl/loop/lag_max_ms": self.whole.max_ms,
        }
