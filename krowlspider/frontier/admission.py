"""The caps on what is queued: for a host, a domain, and the whole frontier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import Health

if TYPE_CHECKING:
    from collections import Counter

    from krowlspider.frontier.budget import DomainBudget
    from krowlspider.frontier.entry_queues import Candidate
    from krowlspider.frontier.hosts.domain_load import DomainLoad
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.limits import Limits

# The priority of URLs that another domain's page names, once the host has _STRANGERS_IN_LINE
# entries. With fewer, one queue serves all.
_STRANGERS = -1
_STRANGERS_IN_LINE = 16


class Admission:
    """Decides which candidates are queued, and counts the refused ones in ``counters``.

    A URL that a cap refuses is counted as ``dropped/host_queue``, ``dropped/frontier``,
    ``dropped/domain_share`` or ``dropped/domain_budget``, one of a retired host as
    ``dropped/crawl_delay``.
    """

    def __init__(
        self, limits: Limits, load: DomainLoad, budget: DomainBudget, counters: Counter[str]
    ):
        self._limits = limits
        self._load = load
        self._budget = budget
        self._counters = counters

    def admit(
        self, host: Host, candidates: list[Candidate], *, queued: int, by_stranger: bool
    ) -> list[Candidate]:
        """Return the candidates of one host that are to be queued. ``queued`` is the number of URLs
        in the whole frontier.

        With ``by_stranger``, another domain's page names them. Then they go behind the host's own,
        once some entries are queued, and leave the host half of its room.
        """
        room, refusal = self._room(host, queued, by_stranger=by_stranger)
        met: set[bytes | None] = set()
        taken: list[Candidate] = []
        for candidate in candidates:
            key = candidate.key
            if key in met:
                self._counters["known"] += 1
            elif len(taken) >= room:
                self._counters[f"dropped/{refusal}"] += 1
            elif self._budget.most and not self._budget.take(host.domain):
                self._counters["dropped/domain_budget"] += 1
            else:
                if by_stranger and host.queue.queued + len(taken) >= _STRANGERS_IN_LINE:
                    candidate.priority = min(candidate.priority, _STRANGERS)
                taken.append(candidate)
                if key is not None:
                    met.add(key)
        return taken

    def _room(self, host: Host, queued: int, *, by_stranger: bool) -> tuple[int, str]:
        """Return how many more entries a host may have, and which cap it is: the name of its
        ``dropped/`` counter."""
        if host.health is Health.RETIRED:
            return 0, "crawl_delay"
        most = self._limits.host_queue
        here = (most // 2 if by_stranger else most) - host.queue.queued
        anywhere = self._limits.total - queued
        room, reason = (here, "host_queue") if here <= max(anywhere, 0) else (anywhere, "frontier")
        of_domain = self._load.room(host.domain, queued)
        if of_domain is None or room <= of_domain:
            return room, reason
        return of_domain, "domain_share"
