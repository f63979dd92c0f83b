"""Warn about the URLs that the caps of the crawl drop, in a few lines."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING

from krowlspider.frontier.admin.words import counted
from krowlspider.frontier.admission import OTHERS
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.settings import BaseSettings

    from krowlspider.frontier.frontier import Frontier

logger = logging.getLogger(__name__)

# What drops URLs, by the reason of the drop, with its value, and how to have more room.
_CAPS = {
    "frontier": (
        "KROWL_FRONTIER_MAX = {KROWL_FRONTIER_MAX}",
        "raise it, or make room on the disk of JOBDIR,",
    ),
    "domain_share": (
        "Share of a domain of KROWL_FRONTIER_MAX = {KROWL_FRONTIER_MAX}",
        "raise it",
    ),
    "domain_budget": ("KROWL_DOMAIN_BUDGET = {KROWL_DOMAIN_BUDGET}", "raise it"),
    "outbox": ("Room for URLs of other nodes", "start the nodes that own these hosts,"),
}
# The caps whose URLs are counted by domain in the lines during the crawl.
_OF_DOMAINS = ("domain_share", "domain_budget")
_WAY_OUT = (
    "They are not marked as seen: %s and start again with the same JOBDIR and seeds."
    " That queues dropped seeds, and links when another page names them. Links of pages that are"
    " done need a new JOBDIR, or scrapy frontier JOBDIR --import FILE"
)
# The caps on sitemaps, which no setting changes.
_SITEMAPS = {
    "sitemap_count": "sitemaps of a robots.txt (200), or of one domain in a run (200 MB)",
    "sitemap_depth": "levels of sitemaps (3)",
}
# Seconds between two lines that name hosts.
PERIOD = 10.0
# Hosts named in a line.
NAMED = 5


class CapWarnings:
    """Warns of hosts whose URLs a cap drops: of each domain, or once for a cap of the whole crawl,
    and once in PERIOD seconds.

    ``clock`` returns seconds.
    """

    def __init__(self, frontier: Frontier, settings: BaseSettings, clock: Callable[[], float]):
        self._frontier = frontier
        self._before = frontier.counters.copy()
        self._caps = {cap: text.format_map(settings) for cap, (text, _) in _CAPS.items()}
        self._clock = clock
        self._next = clock() + PERIOD
        self._warned: set[tuple[str, str]] = set()

    def look(self) -> None:
        """Log the hosts that have lost the most URLs and were not named yet, if any."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + PERIOD
        lost = [
            (hosts.total(), cap, name, hosts)
            for cap in self._caps
            for name, hosts in self._lost_by(cap).items()
            if (cap, name) not in self._warned
        ]
        if lost:
            count, cap, name, hosts = max(lost, key=itemgetter(0, 1, 2))
            self._warned.add((cap, name))
            self._warn(cap, count, "so far", hosts)

    def _lost_by(self, cap: str) -> dict[str, Counter[str]]:
        """Return the hosts that have lost URLs to a cap, by domain if it is one of domains."""
        hosts = self._frontier.refused.hosts(cap)
        if cap not in _OF_DOMAINS:
            return {"": hosts} if hosts else {}
        found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for host, count in hosts.items():
            if host != OTHERS:
                found[domain_of(host)][host] = count
        return found

    def end(self) -> None:
        """Log for each cap how many URLs it has dropped in this run, and of which hosts most."""
        dropped = self._frontier.counters - self._before
        for cap in self._caps:
            if count := dropped[f"dropped/{cap}"]:
                self._warn(cap, count, "in this run", self._frontier.refused.hosts(cap))
        for cap, limit in _SITEMAPS.items():
            if count := dropped[f"dropped/{cap}"]:
                logger.warning(
                    "Limit on %s: %s dropped in this run. Give the URLs named there as seeds to"
                    " have them fetched",
                    limit,
                    counted(count, "sitemap"),
                )

    def _warn(self, cap: str, count: int, when: str, hosts: Counter[str]) -> None:
        most = [(host, lost) for host, lost in hosts.most_common(NAMED + 1) if host != OTHERS]
        names = [f"{host}: {lost}" for host, lost in most[:NAMED]]
        if rest := count - sum(lost for _, lost in most[:NAMED]):
            names.append(f"other hosts: {rest}")
        logger.warning(
            "%s: %s dropped %s (%s). " + _WAY_OUT,
            self._caps[cap],
            counted(count, "URL"),
            when,
            ", ".join(names),
            _CAPS[cap][1],
        )
