"""What a robots fetch came to: the record, and for which authorities it is kept."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from krowlspider.frontier.robots.fetch import RobotsFetch
from krowlspider.politeness.robots import RobotsRecord, Ruling
from krowlspider.urls.host import domain_of, host_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.robots.cache import RobotsCache

# Seconds before an unreachable robots.txt is fetched again: shorter than an hour, after which
# deferred hosts are tried again.
# It survives a restart only with a last good copy; without one, the next start tries at once.
UNREACHABLE_TTL = 1800.0


class RobotsResults:
    """Keeps records in ``cache``. The other arguments are as in `RobotsFetches`."""

    def __init__(
        self,
        cache: RobotsCache,
        *,
        ttl: float,
        wall: Callable[[], float],
        on_found: Callable[[RobotsFetch, list[str]], None] | None,
    ):
        self._cache = cache
        self._ttl = ttl
        self._wall = wall
        self._on_found = on_found

    def record(self, ruling: Ruling, status: int = 0, body: bytes = b"") -> RobotsRecord:
        """Return the record of an answer, or of none, that came now."""
        now = self._wall()
        life = UNREACHABLE_TTL if ruling is Ruling.RETRY else self._ttl
        return RobotsRecord(ruling.value, now, now + life, status, body)

    def received(self, theirs: RobotsRecord) -> RobotsRecord:
        """Return another node's record, which holds no longer than one of this node."""
        record = self.record(Ruling(theirs.ruling), theirs.status, theirs.body)
        record.fetched, record.expires = theirs.fetched, min(theirs.expires, record.expires)
        return record

    def learn(self, authority: str, record: RobotsRecord, robots_fetch: RobotsFetch | None) -> None:
        """Keep the record of an authority; report its sitemaps for a robots fetch, if any."""
        receive = None
        if robots_fetch is not None and self._on_found is not None:
            receive = partial(self._on_found, robots_fetch)
        self._cache.learn(authority, record, receive)

    def learn_passed(self, robots_fetch: RobotsFetch, record: RobotsRecord) -> None:
        """Keep the record of the other authorities whose robots.txt led to the fetch's URL."""
        sources = {*robots_fetch.passed, robots_fetch.source or robots_fetch.authority}
        for authority in sources - {robots_fetch.authority}:
            # That authority will have no robots fetch of its own. The pages of this host may lead
            # to the sitemaps of its own domain only.
            own = domain_of(host_of(authority + "/")) == robots_fetch.host.domain
            passed = RobotsFetch(authority, robots_fetch.host, robots_fetch.url) if own else None
            self.learn(authority, record, passed)
