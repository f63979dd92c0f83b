"""Compute what a fetch is worth, and when a page is due.

With λ changes a second and weight w, fetching a page every τ seconds keeps it fresh for a share of
the time. The derivative of that share by the request rate is w·(1 − e^(−λτ)(1 + λτ))/λ seconds: the
value of a fetch. Requests are best spread where all pages are fetched at one value, the threshold
(Azar, Horvitz, Lubetzky, Peres and Shahaf, PNAS 2018; Kolobov et al., NeurIPS 2019). A rate that is
not known has the expected value over its distribution.
"""

from __future__ import annotations

from math import exp, expm1, log, log1p, sqrt
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.recrawl.estimate import Estimate

# Seconds between two fetches of a page.
INTERVAL_MIN, INTERVAL_MAX = 600.0, 365 * 86_400.0
# Pages that were fetched together are not all due together.
JITTER = 0.05
# Share of the threshold below which a page that comes up is postponed: far enough that its new time
# is later.
_POSTPONED = 0.7
# Halvings of the logarithm of an interval: a thousandth of it, far below the jitter.
_HALVINGS = 14
_LOG_MAX = log(INTERVAL_MAX)
# Below this share of the estimate's time, the closed form loses digits to cancellation.
_SHORT = 1e-5


class Terms(NamedTuple):
    """What holds for the pages of a site: ``weight`` multiplies the value of a fetch, ``least`` and
    ``most`` bound the seconds between two fetches of a page."""

    weight: float = 1.0
    least: float = INTERVAL_MIN
    most: float = INTERVAL_MAX


USUAL = Terms()


def value(rate: float, weight: float, elapsed: float) -> float:
    """Return the value of a fetch of a page with a known rate, in seconds of freshness."""
    changes = rate * elapsed
    if changes < _SHORT:
        return weight * rate * elapsed * elapsed / 2
    return weight * (-expm1(-changes) - changes * exp(-changes)) / rate


def expected_value(estimate: Estimate, weight: float, elapsed: float) -> float:
    """Return the expectation of `value` over the rate's distribution. It grows with ``elapsed``."""
    shape, seconds = estimate
    if elapsed < _SHORT * seconds:
        return weight * shape / seconds * elapsed * elapsed / 2
    logarithm, rest = log1p(elapsed / seconds), 1 - shape
    # The expected seconds until the first change, of those that elapsed.
    fresh = seconds * (expm1(rest * logarithm) / rest if abs(rest) > _SHORT else logarithm)
    return weight * (fresh - elapsed * exp(-shape * logarithm))


def known_interval(rate: float, weight: float, threshold: float) -> float:
    """Return the seconds after which a page with a known rate is worth ``threshold``."""
    return _crossing(lambda elapsed: value(rate, weight, elapsed), threshold, INTERVAL_MIN)


def interval(estimate: Estimate, weight: float, threshold: float) -> float:
    """Return the seconds after which a fetch is worth ``threshold``, within the bounds."""
    shape, seconds = estimate
    # No value exceeds that of the first order: the interval is no shorter than this.
    least = sqrt(2 * threshold * seconds / (shape * weight))
    return _crossing(lambda elapsed: expected_value(estimate, weight, elapsed), threshold, least)


def _crossing(worth: Callable[[float], float], threshold: float, least: float) -> float:
    """Return where a worth that grows crosses the threshold, at ``least`` or later."""
    if worth(INTERVAL_MAX) <= threshold:
        return INTERVAL_MAX
    low, high = log(max(least, INTERVAL_MIN)), _LOG_MAX
    if worth(INTERVAL_MIN) >= threshold:
        return INTERVAL_MIN
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if worth(exp(middle)) < threshold:
            low = middle
        else:
            high = middle
    return exp(low)


def worth_with_hint(estimate: Estimate, weight: float, elapsed: float, probability: float) -> float:
    """Return the value of a fetch of a page that has changed with this probability, by a hint.

    Only what exceeds the probability by the estimate counts: a source that names pages blindly is
    right as often. A page that surely has changed has the value that it has after INTERVAL_MAX.
    """
    known = expected_value(estimate, weight, elapsed)
    stays = exp(-estimate.shape * log1p(elapsed / estimate.seconds))
    gain = 1 - (1 - probability) / stays
    if gain <= 0:
        return known
    return known + gain * (expected_value(estimate, weight, INTERVAL_MAX) - known)


def is_due(
    estimate: Estimate,
    weight: float,
    threshold: float,
    elapsed: float,
    hinted: float = 0.0,
    *,
    most: float = INTERVAL_MAX,
) -> bool:
    """Return whether a page that comes up ``elapsed`` seconds after its last fetch is asked.

    The threshold may have risen since it was planned, or the precision of a hint (``hinted``)
    fallen. If not, `due_time` of its last fetch is in the future. A page is asked after ``most``
    seconds, whatever it is worth.
    """
    worth = worth_with_hint(estimate, weight, elapsed, hinted)
    return worth >= _POSTPONED * threshold or elapsed >= most * (1 - JITTER)


def due_time(
    estimate: Estimate,
    weight: float,
    threshold: float,
    last_fetch: float,
    identity: bytes,
    *,
    least: float = INTERVAL_MIN,
    most: float = INTERVAL_MAX,
) -> float:
    """Return when a page is due, in epoch seconds as ``last_fetch``.

    It is ``least`` to ``most`` seconds after the last fetch. JITTER follows from the identity and
    the time of the last fetch.
    """
    chance = xxh3_64_intdigest(identity, int(last_fetch)) / 2**64
    wait = interval(estimate, weight, threshold) * (1 + JITTER * (2 * chance - 1))
    return last_fetch + min(max(wait, least), most)
