"""Warn about the URLs that the caps of the crawl drop, in a few lines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.settings import BaseSettings

    from krowlspider.frontier.frontier import Frontier

logger = logging.getLogger(__name__)

# The settings whose caps drop URLs, by the reason of the drop.
_SETTINGS = {
    "frontier": "KROWL_FRONTIER_MAX",
    "domain_share": "KROWL_DOMAIN_SHARE",
    "domain_budget": "KROWL_DOMAIN_BUDGET",
    "outbox": "KROWL_OUTBOX_MAX",
}
_WAY_OUT = (
    "They are not marked as seen: raise the setting and start again with the same JOBDIR and seeds."
    " That queues dropped seeds, and links when another page names them. Links of pages that are"
    " done need a new JOBDIR, or scrapy frontier JOBDIR --import FILE"
)
# The caps on sitemaps, which no setting changes.
_SITEMAPS = {
    "sitemap_count": "sitemaps of a robots.txt (200), or of one domain in a run (200 MB)",
    "sitemap_depth": "levels of sitemaps (3)",
}
# Seconds between two lines that name a domain.
PERIOD = 10.0
# Domains named in the line of a cap at the end.
NAMED = 5


class CapWarnings:
    """Warns of domains whose URLs a cap drops: of each once, and of one in PERIOD seconds.

    ``clock`` returns seconds.
    """

    def __init__(self, frontier: Frontier, settings: BaseSettings, clock: Callable[[], float]):
        self._frontier = frontier
        self._before = frontier.counters.copy()
        self._caps = {cap: f"{name} = {settings[name]}" for cap, name in _SETTINGS.items()}
        self._clock = clock
        self._next = clock() + PERIOD
        self._warned: set[tuple[str, str]] = set()

    def look(self) -> None:
        """Log the domain that has lost the most URLs and was not named yet, if any."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + PERIOD
        lost = [
            (count, cap, name)
            for cap in self._caps
            for name, count in self._frontier.refused[cap].items()
            if (cap, name) not in self._warned
        ]
        if lost:
            count, cap, name = max(lost)
            self._warned.add((cap, name))
            of_name = f" of {name}" if name else ""
            logger.warning(
                "%s: %d URLs%s dropped so far. %s", self._caps[cap], count, of_name, _WAY_OUT
            )

    def end(self) -> None:
        """Log for each cap how many URLs it has dropped in this run, and of which domains most."""
        dropped = self._frontier.counters - self._before
        for cap, setting in self._caps.items():
            if count := dropped[f"dropped/{cap}"]:
                logger.warning(
                    "%s: %d URLs%s dropped in this run. %s",
                    setting,
                    count,
                    self._names(cap),
                    _WAY_OUT,
                )
        for cap, limit in _SITEMAPS.items():
            if count := dropped[f"dropped/{cap}"]:
                logger.warning(
                    "Limit on %s: %d sitemaps dropped in this run. Give the URLs that they name as"
                    " seeds to have them fetched",
                    limit,
                    count,
                )

    def _names(self, cap: str) -> str:
        most = self._frontier.refused[cap].most_common(NAMED)
        names = ", ".join(f"{name}: {count}" for name, count in most if name)
        return f" ({names})" if names else ""
