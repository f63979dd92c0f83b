"""Estimate how often a page changes, from what its fetches saw.

The rate has a Gamma distribution. A fetch sees at most one change of an interval, so counting
changes gives too low a rate (Cho and Garcia-Molina, "Estimating frequency of change", ACM TOIT
2003). Here the posterior of "at least one change" is computed, and a Gamma distribution with its
mean and variance is kept. An interval without change has a Gamma posterior as it is.
"""

from __future__ import annotations

from math import expm1, log1p
from struct import Struct
from typing import NamedTuple, Self

# Seconds of an interval that count at most.
INTERVAL_MAX = 2 * 365 * 86_400.0
# An interval without change counts at most this many times the seconds of the estimate: a jump of
# the clock divides the rate of a page by five, not by a thousand.
_INFLUENCE = 4.0
# The most changes that are remembered: then the rate of a page may drift.
SHAPE_MAX = 12.0
# Seconds between two changes, at least: no page is asked so often that more could be seen.
_BETWEEN_MIN = 60.0
# Seconds that are remembered at most: a page that wakes up after a year is noticed.
SECONDS_MAX = 365 * 86_400.0
# On disk: floats of two bytes, the second one in units that make SECONDS_MAX fit.
_STORED = Struct(">ee")
ESTIMATE_SIZE = _STORED.size
_UNIT = 600.0
_LEAST, _MOST = 2.0**-14, 65_504.0


class Estimate(NamedTuple):
    """A Gamma distribution of changes a second: ``shape`` changes were seen in ``seconds``."""

    shape: float
    seconds: float

    def __bytes__(self) -> bytes:
        return _STORED.pack(min(self.shape, _MOST), min(self.seconds / _UNIT, _MOST))

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Return what ``bytes`` made: within 1 in 2,000."""
        shape, units = _STORED.unpack(data)
        return cls(shape or _LEAST, (units or _LEAST) * _UNIT)

    @property
    def rounded(self) -> Self:
        """As it is stored: the demand of a page must be the same when it is read again."""
        return self.read(bytes(self))

    @property
    def mean(self) -> float:
        """The expected changes a second."""
        return self.shape / self.seconds


def observe(estimate: Estimate, interval: float, *, changed: bool) -> Estimate:
    """Return the estimate after a fetch, ``interval`` seconds after the one before it.

    ``changed``: there was at least one change.
    """
    shape, seconds = estimate
    if not changed:
        return _bounded(shape, seconds + min(max(interval, 0.0), _INFLUENCE * seconds))
    return _some_change(shape, seconds, min(interval, INTERVAL_MAX))


def _some_change(shape: float, seconds: float, interval: float) -> Estimate:
    """Return the Gamma distribution with the moments of the posterior of "at least one change".

    The likelihood is 1 − e^(−λt): the posterior is a difference of two Gamma densities.
    """
    if interval < 1:
        # So short a time holds one change, and no digits to compute with.
        return _bounded(shape + 1, seconds)
    log = log1p(interval / seconds)
    none, first, second = (-expm1(-(shape + more) * log) for more in range(3))
    mean, square = first / none, (shape + 1) / shape * second / none
    spread = square - mean * mean
    return _bounded(mean * mean / spread, seconds * mean / (shape * spread))


def _bounded(shape: float, seconds: float) -> Estimate:
    if shape > SHAPE_MAX:
        shape, seconds = SHAPE_MAX, seconds * SHAPE_MAX / shape
    return Estimate(shape, min(max(seconds, shape * _BETWEEN_MIN), SECONDS_MAX))
