"""Values of labels that are there from zero."""

from __future__ import annotations

from krowlspider.crawl.drop_reasons import REFUSED
from krowlspider.fetch.errors import FetchError, NameFailed
from krowlspider.frontier.hosts.table import SchedulingState
from krowlspider.frontier.robots.gate import Verdict


def _kinds(kind: type[FetchError]) -> list[str]:
    return [kind.kind, *(name for each in kind.__subclasses__() for name in _kinds(each))]


ERRORS = (*_kinds(FetchError)[1:], "stopped", "error")
NAME_ERRORS = tuple(_kinds(NameFailed))
# Those of `RedisTrouble`, whose module would load Redis for a crawl of one process.
REDIS_ERRORS = ("full", "readonly", "loading", "auth", "timeout", "down", "type", "disk", "other")
_REFUSING = {*Verdict} - {Verdict.ALLOWED, Verdict.UNKNOWN}
# Why URLs are dropped; docs/stats.md explains each.
DROPPED = tuple(
    sorted(
        {
            *REFUSED,
            *ERRORS,
            *(verdict.value for verdict in _REFUSING),
            *("host", "domain", "depth", "url", "frontier", "domain_budget", "domain_share"),
            *("outbox", "redirects", "redirect_loop", "sitemap_domain", "sitemap_depth"),
            *("sitemap_count", "requisite_site", "requisite_budget", "throttled", "poison"),
            *("operator", "hops", "ignored", "not_awaited", "unserializable"),
        }
    )
)
STATES = tuple(state.value.replace(" ", "_") for state in SchedulingState)
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
STATUSES = (
    *("200", "204", "206", "301", "302", "303", "304", "307", "308", "400", "401", "403", "404"),
    *("405", "406", "410", "429", "451", "500", "502", "503", "504"),
)
