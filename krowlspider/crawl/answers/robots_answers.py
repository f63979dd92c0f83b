"""Pass on the answer, or the failure, of each robots fetch."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krowlspider.crawl.answers.failures import is_final
from krowlspider.crawl.in_flight import EXCUSED, End
from krowlspider.fetch.errors import AddressForbidden
from krowlspider.urls.page.headers import escape_octets

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.http import Response

    from krowlspider.crawl.in_flight import InFlight
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts.host import RobotsFetch
    from krowlspider.frontier.robots.fetches import RobotsFetches
    from krowlspider.frontier.work_mark import WorkMark

logger = logging.getLogger(__name__)

# Robots fetches to a forbidden address that are logged; further ones are only counted.
_WARNINGS = 5


class RobotsAnswers:
    """Hands the ends of robots fetches on, under the mark of their host.

    ``charge`` is called with the request in flight and the seconds that reading its answer took,
    ``count`` with the name of each stat to count.
    """

    def __init__(
        self,
        fetches: RobotsFetches,
        frontier: Frontier,
        mark: WorkMark,
        charge: Callable[[InFlight, float], None],
        count: Callable[[str], None],
    ):
        self._fetches = fetches
        self._frontier = frontier
        self._mark = mark
        self._charge = charge
        self._count = count
        self._warned = 0

    def answered(self, in_flight: InFlight, robots_fetch: RobotsFetch, response: Response) -> None:
        """Record an answer."""
        self._count("robotstxt/response_count")
        self._frontier.counters["done/robots"] += 1
        self._count(f"robotstxt/response_status_count/{response.status}")
        location = response.headers.get(b"Location")
        target = None if location is None else escape_octets(location)
        begun = self._frontier.now()
        mark = in_flight.mark(self._frontier.queues)
        args = robots_fetch, response.status, response.body, target
        self._mark.during(mark, self._fetches.answered, *args)
        self._charge(in_flight, self._frontier.now() - begun)

    def failed(self, in_flight: InFlight, robots_fetch: RobotsFetch, error: Exception) -> None:
        """Record a failure."""
        if in_flight.end is End.FELL_BACK:
            # It is over: what waited for it goes on without https.
            return
        cause = error.__cause__
        self._count("robotstxt/exception_count")
        if isinstance(cause, AddressForbidden):
            self._warn(robots_fetch, cause)
        if in_flight.end in EXCUSED:
            self._fetches.queue(robots_fetch)
        else:
            final = in_flight.defers or is_final(error)
            self._fetches.failed(robots_fetch, final=final)

    def _warn(self, robots_fetch: RobotsFetch, cause: AddressForbidden) -> None:
        self._warned += 1
        if self._warned <= _WARNINGS:
            logger.warning(
                "%s stays queued and is not fetched: %s. %s",
                robots_fetch.host.name,
                cause,
                cause.remedy,
            )
