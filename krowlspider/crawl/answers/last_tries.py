"""Accept an answer that may be cut, once its retries are used up."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from krowlspider.crawl.answers.failures import as_scrapy
from krowlspider.crawl.answers.retries import Retries
from krowlspider.fetch.errors import NoCloseNotify
from krowlspider.politeness.delay import THROTTLING

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
