"""How late the event loop is: what a timer met, as a histogram of fixed size."""

from __future__ import annotations

from array import array

# Seconds between two planned times of the timer.
INTERVAL = 0.02
# Units a second: the histogram counts in steps of 0.1 ms, finer than any clock of a loop.
_UNITS = 10_000
# What is later counts as this: 100 s.
_HIGHEST = 100 * _UNITS
# Buckets for each doubling, so that none is wider than 1/16 of what it counts (the idea of HdrHistogram).
_STEPS_BITS = 4
_STEPS = 1 << _STEPS_BITS


def _bucket(units: int) -> int:
    """Below 32 each unit has a bucket of its own; from there the highest five bits tell it."""
    shift = max(0, units.bit_length() - _STEPS_BITS - 1)
    return (shift << _STEPS_BITS) + (units >> shift)


def _top(bucket: int) -> int:
    """The most units that are counted in a bucket."""
    shift = max(0, (bucket >> _STEPS_BITS) - 1)
    return ((bucket - (shift << _STEPS_BITS) + 1) << shift) - 1


class Histogram:
    """Counts durations up to 100 s, in 2 kB whatever comes."""

    __slots__ = ("_counts", "_most", "count")

    def __init__(self) -> None:
        self._counts = array("Q", bytes(8 * (_bucket(_HIGHEST) + 1)))
        self._most = 0
        self.count = 0

    def record(self, seconds: float) -> None:
        """Count one duration; less than none is none."""
        units = min(max(0, int(seconds * _UNITS)), _HIGHEST)
        self._counts[_bucket(units)] += 1
        self._most = max(self._most, units)
        self.count += 1

    @property
    def max_ms(self) -> float:
        """The longest, in ms, without what it has over a step of 0.1; 0 when nothing was counted."""
        return 1000 * self._most / _UNITS

    def quantile_ms(self, per_mille: int) -> float:
        """What ``per_mille`` in a thousand did not exceed, in ms, at most 1/16 too much; 0 when nothing was counted.

        ``per_mille`` is 1 to 1000: 500 is the median.
        """
        rank = -(-self.count * per_mille // 1000)
        for bucket, count in enumerate(self._counts):
            rank -= count
            if rank <= 0:
                return 1000 * min(_top(bucket), self._most) / _UNITS
        raise AssertionError("the counts are not their sum")


class Lateness:
    """How late a timer was that is planned every INTERVAL, whole and since `renew`.

    A planned time that a stall swallowed counts too, as late as the loop was then: else a stall of ten seconds would be
    one of many, as a timer that runs on time is.
    """

    def __init__(self, now: float):
        self.planned = now + INTERVAL
        self.whole = Histogram()
        self.recent = Histogram()

    def met(self, now: float) -> None:
        """The timer that was planned has run; ``planned`` is the next time, which is not over."""
        late = max(0.0, now - self.planned)
        passed = int(late / INTERVAL)
        self.planned += (passed + 1) * INTERVAL
        # A machine that was asleep for a day is not counted for a day.
        for missed in range(min(passed, int(_HIGHEST / _UNITS / INTERVAL)) + 1):
            self.whole.record(late - missed * INTERVAL)
            self.recent.record(late - missed * INTERVAL)

    def renew(self) -> Histogram:
        """What was met since the last time this was asked; from now on it is counted anew."""
        recent, self.recent = self.recent, Histogram()
        return recent
