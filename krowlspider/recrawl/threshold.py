"""Adapt the threshold to the requests that a host, or the crawl, can afford.

Each page that has a next time adds its demand: the requests a second that it would take at
threshold 1. At threshold μ the pages take demand/√μ, as intervals grow with √μ while they are short
beside the time of a change. So the threshold follows from demand and requests, without waiting for
what a new threshold does to pages that are due in a month. Each page that is planned anew corrects
its part.

Each host has a threshold, by its politeness, and the crawl has one, by its budget. A page goes by
the higher one.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from krowlspider.recrawl.value import expected_value

if TYPE_CHECKING:
    from krowlspider.recrawl.estimate import Estimate

# Seconds between two steps.
EVERY = 60.0
# Seconds of freshness that a fetch is worth at least, and at most: a host with few pages is not
# asked for all that it could bear.
THRESHOLD_MIN, THRESHOLD_MAX = 60.0, 1e9
# Of a host that is not known: a page that changes every ten days is fetched daily.
THRESHOLD_START = 4320.0
# Share of the requests that is planned: with all of them, chance alone would make pages late.
PLANNED = 0.97
# Share of the way, as a power, that a step goes.
_GAIN = 0.25
# The largest factor of a step.
_STEP_MAX = 2.0


def demand(estimate: Estimate, weight: float, planned: float) -> float:
    """Return the demand of a page that is fetched again after ``planned`` seconds.

    The sum over the pages of a host is kept: a page that is planned anew adds the difference.
    """
    return sqrt(expected_value(estimate, weight, planned)) / planned


def counted(demanded: float, requests: float, threshold: float) -> float:
    """Return what of a host's demand counts for the crawl, whose threshold is given.

    A host that affords fewer ``requests`` a second than the crawl's threshold asks for makes only
    those. The sum over all hosts is the crawl's demand.
    """
    return min(demanded, requests * PLANNED * sqrt(threshold))


def step(threshold: float, demanded: float, requests: float) -> float:
    """Return the threshold of the next minute.

    ``demanded`` is the sum of `demand`, ``requests`` what can be afforded a second. Where nothing
    can be afforded, the threshold stays: no page is asked, and none is planned.
    """
    if requests <= 0:
        return threshold
    over = demanded / sqrt(threshold) / (requests * PLANNED)
    factor: float = min(max(over ** (2 * _GAIN), 1 / _STEP_MAX), _STEP_MAX)
    return min(max(threshold * factor, THRESHOLD_MIN), THRESHOLD_MAX)
