"""How often a failed page is tried again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from scrapy.settings import Settings

from krowlspider.fetch.errors import ConnectRefused, ConnectTimeout, FetchError, TotalTimeout
from krowlspider.frontier.hosts.host import Host
from krowlspider.job.answers.retries import Retries, as_scrapy
from krowlspider.job.in_flight import InFlight
from krowlspider.politeness.delay import THROTTLING_TIMES
from krowlspider.settings import defaults

RETRY_TIMES: int = defaults["RETRY_TIMES"]


def tries_of(
    cause: FetchError,
    *,
    latency: float,
    meta: dict[str, Any] | None = None,
    counted: Counter[str] | None = None,
    **settings: Any,
) -> int:
    """Return how often a page is tried again that always fails so. Its host has that average
    latency, 0 before its first answer."""
    host = Host("a.test")
    host.rate.ema = latency
    counted = Counter() if counted is None else counted

    def count(name: str) -> None:
        counted[name] += 1

    retries = Retries(Settings({**defaults, **settings}), count)
    meta = {} if meta is None else meta
    error = as_scrapy(cause)
    error.__cause__ = cause
    tries = 0
    while retries.after_failure(error, InFlight(host, "http://a.test/"), meta):
        tries += 1
        assert tries < 100
    return tries


@pytest.mark.parametrize("cause", [ConnectTimeout, ConnectRefused, TotalTimeout])
def test_a_page_of_a_silent_host_has_few_tries(cause: type[FetchError]) -> None:
    assert tries_of(cause("x"), latency=0.0) == RETRY_TIMES


def test_a_host_that_has_answered_may_be_full() -> None:
    """A connection that it does not make in time is no fault of the page, as 503 is none."""
    counted: Counter[str] = Counter()
    found = tries_of(ConnectTimeout("x"), latency=0.1, counted=counted)
    assert found == THROTTLING_TIMES > RETRY_TIMES
    assert counted["retry/reason_count/connect_timeout"] == THROTTLING_TIMES
    assert tries_of(ConnectRefused("x"), latency=0.1) == RETRY_TIMES
    assert tries_of(TotalTimeout("x"), latency=0.1) == RETRY_TIMES


def test_who_asks_for_no_retry_gets_none() -> None:
    assert tries_of(ConnectTimeout("x"), latency=0.1, RETRY_TIMES=0) == 0
    assert tries_of(ConnectTimeout("x"), latency=0.1, RETRY_ENABLED=False) == 0
    assert tries_of(ConnectTimeout("x"), latency=0.1, meta={"max_retry_times": 0}) == 0
    assert tries_of(ConnectTimeout("x"), latency=0.1, meta={"dont_retry": True}) == 0
