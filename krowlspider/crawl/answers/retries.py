"""Which failed pages are fetched again, and how often; and what is accepted after the last try.

`next_try` of the delays says when.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy.utils.misc import load_object

from krowlspider.crawl.answers.failures import (
    answer_to,
    as_scrapy,
    failure_kind,
    is_answer,
    is_final,
)
from krowlspider.crawl.in_flight import EXCUSED, End
from krowlspider.fetch.errors import NameNotFound, NoCloseNotify
from krowlspider.frontier.entry_queues import FELL_BACK
from krowlspider.politeness.delay import THROTTLING, THROTTLING_TIMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.settings import BaseSettings

    from krowlspider.crawl.in_flight import InFlight
    from krowlspider.fetch.errors import FetchError
    from krowlspider.fetch.exchange import Exchange

logger = logging.getLogger(__name__)

# The flag of a response that may be cut.
TRUNCATED = "truncated"
_COUNTED = "krowl/fetch/truncated_count"


class Retries:
    """Counts the retries of each page in the meta of its request.

    429 and 503 have a limit of their own, THROTTLING_TIMES, because the page is not their
    cause. ``dont_retry`` in the meta is honoured as in Scrapy. So is ``max_retry_times``, except
    for 429 and 503. Without RETRY_ENABLED no page is retried. ``count`` is called with the name of
    each stat to increment.
    """

    def __init__(self, settings: BaseSettings, count: Callable[[str], None]):
        is_on = settings.getbool("RETRY_ENABLED")
        self._times = settings.getint("RETRY_TIMES") if is_on else 0
        self._throttling_times = THROTTLING_TIMES if is_on else 0
        self._codes = {int(code) for code in settings.getlist("RETRY_HTTP_CODES")}
        self._errors = tuple(map(load_object, settings.getlist("RETRY_EXCEPTIONS")))
        self._count = count

    def after_answer(self, status: int, in_flight: InFlight | None, meta: dict[str, Any]) -> bool:
        """Return whether to fetch a page again because of its status, and count the retry. A page
        that is throttled for the last time is dropped."""
        if status in THROTTLING:
            again = self._throttled(status, meta)
            if not again and in_flight is not None:
                in_flight.fail("throttled")
            return again
        return status in self._codes and self._again(
            meta, "retry_times", meta.get("max_retry_times", self._times), str(status)
        )

    def after_failure(
        self, error: Exception, in_flight: InFlight | None, meta: dict[str, Any]
    ) -> bool:
        """Return whether to give a failed page back to its queue; count the retry, if it is one."""
        if in_flight is None:
            return self._after_error(error, meta)
        if in_flight.end in EXCUSED:
            return True
        if in_flight.end is End.FELL_BACK:
            return False
        if self._after_error(error, meta):
            return True
        lease = in_flight.lease
        if lease is not None and lease.entry.may_fall_back and self._may_lack_https(error):
            in_flight.fail(FELL_BACK, End.FELL_BACK)
        return False

    def _throttled(self, status: int, meta: dict[str, Any]) -> bool:
        return self._again(meta, "throttling_times", self._throttling_times, str(status))

    def _after_error(self, error: Exception, meta: dict[str, Any]) -> bool:
        if (status := _throttling_of(error)) is not None:
            return self._throttled(status, meta)
        # A name that does not exist parks its host, so the page is retried later.
        final = is_final(error) and not isinstance(error.__cause__, NameNotFound)
        if final or not isinstance(error, self._errors):
            return False
        limit = meta.get("max_retry_times", self._times)
        return self._again(meta, "retry_times", limit, failure_kind(error))

    def is_last(self, error: Exception, meta: dict[str, Any]) -> bool:
        """Return whether `after_failure` will not fetch a page again, without counting anything."""
        limit = meta.get("max_retry_times", self._times)
        is_over = meta.get("retry_times", 0) >= limit or meta.get("dont_retry", False)
        return is_over or not isinstance(error, self._errors)

    def _may_lack_https(self, error: Exception) -> bool:
        """Return whether a failure after the last retry may mean that a host has no https."""
        is_transport = isinstance(error, self._errors) and not is_answer(error)
        return is_transport and _throttling_of(error) is None

    def _again(self, meta: dict[str, Any], counter: str, limit: int, reason: str) -> bool:
        times = meta.get(counter, 0) + 1
        if times > limit or meta.get("dont_retry", False):
            self._count("retry/max_reached")
            return False
        meta[counter] = times
        self._count("retry/count")
        self._count(f"retry/reason_count/{reason}")
        return True


def _throttling_of(error: Exception) -> int | None:
    """Return the status of a throttling answer whose body could not be read, else None."""
    answer = answer_to(error)
    return answer.status if answer is not None and answer.status in THROTTLING else None


class LastTries:
    """Accepts an answer over TLS without length and without close_notify at the last try, as curl
    and Scrapy do: a cut answer is seldom cut at each try. ``count`` is as in `Retries`."""

    def __init__(self, settings: BaseSettings, count: Callable[[str], None]):
        self._retries = Retries(settings, count)
        self._robots_retries = settings.getint("RETRY_TIMES")
        self._count = count
        self._is_logged = False

    def accepted(
        self, error: FetchError, in_flight: InFlight, meta: dict[str, Any]
    ) -> Exchange | None:
        """Return the answer of a failed fetch if it is to be accepted, and count it."""
        answer = error.exchange
        if answer is None or not isinstance(error, NoCloseNotify):
            return None
        # What matters of a throttling answer is its head.
        if answer.status not in THROTTLING and not self._is_last(error, in_flight, meta):
            return None
        self._count(_COUNTED)
        if not self._is_logged:
            self._is_logged = True
            logger.info(
                "%s: accepted after the last try, and marked as truncated: its server ends TLS"
                " without close_notify and names no length, so it may be cut. Further ones are"
                " counted as %s",
                in_flight.url,
                _COUNTED,
            )
        return answer

    def _is_last(self, error: FetchError, in_flight: InFlight, meta: dict[str, Any]) -> bool:
        if (fetch := in_flight.robots_fetch) is not None:
            return fetch.retries >= self._robots_retries
        return self._retries.is_last(as_scrapy(error), meta)
