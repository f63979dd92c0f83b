"""The caps on what is queued: for a host, a domain, and the whole frontier."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import Health

if TYPE_CHECKING:
    from krowlspider.frontier.budget import DomainBudget
    from krowlspider.frontier.entry_queues import Candidate
    from krowlspider.frontier.hosts.domain_load import DomainLoad
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.limits import Limits

# The priority of URLs that another domain's page names, once the host has _STRANGERS_IN_LINE
# entries. With fewer, one queue serves all.
_STRANGERS = -1
_STRANGERS_IN_LINE = 16
# The priority of URLs for which the host's queue has no place, unless theirs is lower. Those that
# another domain's page names have one less.
OVERFLOW = -1000
# Hosts or domains whose refused URLs are counted by name, for each cap.
_NAMES_MAX = 1000
_OF_DOMAINS = ("domain_share", "domain_budget")


class Admission:
    """Decides which candidates are queued, and counts the refused ones in ``counters``.

    A URL that a cap refuses is counted as ``dropped/frontier``, ``dropped/domain_share`` or
    ``dropped/domain_budget``, one of a retired host as ``dropped/crawl_delay``. ``refused`` counts
    those since the start, by cap and then by domain, or by host for ``crawl_delay``; the name is
    empty for a cap on the whole frontier.
    """

    def __init__(
        self, limits: Limits, load: DomainLoad, budget: DomainBudget, counters: Counter[str]
    ):
        self._limits = limits
        self._load = load
        self._budget = budget
        self._counters = counters
        self.refused: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def admit(
        self,
        host: Host,
        candidates: list[Candidate],
        *,
        queued: int,
        by_stranger: bool,
        is_exempt: bool,
    ) -> list[Candidate]:
        """Return the candidates of one host that are to be queued. ``queued`` is the number of URLs
        in the whole frontier.

        With ``by_stranger``, another domain's page names them. Then they go behind the host's own,
        once some entries are queued, and leave the host half of its places and of its domain's
        share. Candidates without a place are queued behind all others of the host. Otherwise, with
        ``is_exempt``, they need no place.
        """
        room, cap = self._room(host, queued)
        places = room
        if by_stranger or not is_exempt:
            places = self._limits.host_queue // (2 if by_stranger else 1) - host.queue.queued
            if places < len(candidates):
                places = max(0, places + _in_overflow(host))
        if by_stranger and (most := self._load.strangers_room(host.domain)) is not None:
            most = max(most, places)
            room, cap = (most, "domain_share") if most < room else (room, cap)
        met: set[bytes | None] = set()
        taken: list[Candidate] = []
        for candidate in candidates:
            key = candidate.key
            if key in met:
                self._counters["known"] += 1
            elif len(taken) >= room:
                self._refuse(cap, host)
            elif self._budget.most and not self._budget.take(host.domain):
                self._refuse("domain_budget", host)
            else:
                if len(taken) >= places:
                    candidate.priority = min(candidate.priority, OVERFLOW - by_stranger)
                elif by_stranger and host.queue.queued + len(taken) >= _STRANGERS_IN_LINE:
                    candidate.priority = min(candidate.priority, _STRANGERS)
                taken.append(candidate)
                if key is not None:
                    met.add(key)
        return taken

    def _refuse(self, cap: str, host: Host) -> None:
        self._counters[f"dropped/{cap}"] += 1
        name = host.domain if cap in _OF_DOMAINS else "" if cap == "frontier" else host.name
        names = self.refused[cap]
        if name in names or len(names) < _NAMES_MAX:
            names[name] += 1

    def _room(self, host: Host, queued: int) -> tuple[int, str]:
        """Return how many more entries a host may have, and which cap it is: the name of its
        ``dropped/`` counter."""
        if host.health is Health.RETIRED:
            return 0, "crawl_delay"
        room, cap = self._limits.total - queued, "frontier"
        of_domain = self._load.room(host.domain, queued)
        if of_domain is None or room <= of_domain:
            return room, cap
        return of_domain, "domain_share"


def _in_overflow(host: Host) -> int:
    """Return how many entries of a host are in the overflow, where they take no places."""
    levels = host.queue.levels.items()
    return sum(level.tail - level.head for number, level in levels if number >> 8 <= OVERFLOW)
