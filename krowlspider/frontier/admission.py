"""The caps on what is queued: for a host, a domain, and the whole frontier."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import Health

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.budget import DomainBudget
    from krowlspider.frontier.entry_queues import Candidate
    from krowlspider.frontier.hosts.domain_load import DomainLoad
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.limits import Limits

# The priority of URLs that another domain's page names, once the host has _STRANGERS_IN_LINE
# entries. With fewer, one queue serves all.
_STRANGERS = -1
_STRANGERS_IN_LINE = 16
# A domain may have so many times its share, those in the overflow included.
_SHARES = 2
# The priority of URLs for which there is no place, unless theirs is lower. Those that another
# domain's page names have one less.
OVERFLOW = -1000
# Hosts counted by name, for each cap. With more, the smaller half is counted under OTHERS.
NAMES_MAX = 1000
# Stands in place of the hosts that are no longer counted by name. No host has this name.
OTHERS = ""


class Refused:
    """The URLs that caps have refused since the start, by cap and then by host.

    The sum over the hosts of a cap is exact.
    """

    def __init__(self) -> None:
        self._hosts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, cap: str, host: str) -> None:
        """Count one URL of a host."""
        hosts = self._hosts[cap]
        hosts[host] += 1
        if len(hosts) > NAMES_MAX:
            largest = Counter(dict(hosts.most_common(NAMES_MAX // 2)))
            largest[OTHERS] += hosts.total() - largest.total()
            self._hosts[cap] = largest

    def hosts(self, cap: str) -> Counter[str]:
        """Return how many URLs of each host a cap has refused."""
        return self._hosts[cap]


class Admission:
    """Decides which candidates are queued, and counts the refused ones in ``counters`` and
    ``refused``.

    A URL that a cap refuses is counted as ``dropped/frontier``, ``dropped/domain_share`` or
    ``dropped/domain_budget``, one of a retired host as ``dropped/crawl_delay``.

    ``may_overflow`` returns whether the disk has room for more than ``limits.total`` URLs.
    """

    def __init__(
        self,
        limits: Limits,
        load: DomainLoad,
        budget: DomainBudget,
        counters: Counter[str],
        may_overflow: Callable[[], bool],
    ):
        self._limits = limits
        self._load = load
        self._budget = budget
        self._counters = counters
        self._may_overflow = may_overflow
        # With no more URLs in the frontier, only the cap of a host can refuse any.
        self._uncapped = min(limits.total, load.limited_from)
        self._strangers = min(_STRANGERS_IN_LINE, limits.host_queue // 2)
        self.refused = Refused()

    def admit(
        self,
        host: Host,
        candidates: list[Candidate],
        *,
        queued: int,
        by_stranger: bool,
        is_exempt: bool,
        is_given: bool,
    ) -> list[Candidate]:
        """Return the candidates of one host that are to be queued. ``queued`` is the number of URLs
        in the whole frontier.

        Candidates without a place are queued behind all others of the host. With ``by_stranger``,
        another domain's page names them. Then they go behind the host's own, once some entries are
        queued, and leave the host half of its places and of its domain's room. Otherwise, with
        ``is_exempt``, they need no place. With ``is_given``, a person or the spider's own code
        names them: no share of a domain and no cap of the frontier refuses them.
        """
        count = len(candidates)
        if (
            queued + count <= self._uncapped
            and host.queue.queued + count
            <= (self._strangers if by_stranger else self._limits.host_queue)
            and not self._budget.most
            and host.health is not Health.RETIRED
            and (count == 1 or len({each.key for each in candidates}) == count)
        ):
            # The short way: most hosts are far from every cap.
            return candidates
        of_host = self._places(host, count, by_stranger)
        room, cap = self._room(host, count, queued, is_given)
        if by_stranger and (most := max(self._load.room(host.domain, 1), of_host)) < room:
            room, cap = most, "domain_share"
        places: float = count
        if by_stranger or not is_exempt:
            places = min(of_host, self._limits.total - queued)
            if queued >= self._load.limited_from:
                places = min(places, self._load.room(host.domain, 1))
        met: set[bytes | None] = set()
        taken: list[Candidate] = []
        for candidate in candidates:
            key = candidate.key
            if key in met:
                self._counters["known"] += 1
            elif len(taken) >= room:
                self.refuse(cap, host.name)
            elif self._budget.most and not self._budget.take(host.domain):
                self.refuse("domain_budget", host.name)
            else:
                if len(taken) >= places:
                    candidate.priority = min(candidate.priority, OVERFLOW - by_stranger)
                elif by_stranger and host.queue.queued + len(taken) >= _STRANGERS_IN_LINE:
                    candidate.priority = min(candidate.priority, _STRANGERS)
                taken.append(candidate)
                if key is not None:
                    met.add(key)
        return taken

    def refuse(self, cap: str, host: str) -> None:
        """Count a URL of a host that a cap refuses."""
        self._counters[f"dropped/{cap}"] += 1
        self.refused.add(cap, host)

    def _places(self, host: Host, count: int, by_stranger: bool) -> int:
        """Return how many of ``count`` more entries have a place in the queue of a host, at
        least."""
        places = self._limits.host_queue // (2 if by_stranger else 1) - host.queue.queued
        return places if places >= count else max(0, places + _in_overflow(host))

    def _room(self, host: Host, count: int, queued: int, is_given: bool) -> tuple[float, str]:
        """Return how many of ``count`` more entries a host may have, with a place or without, and
        which cap it is: the name of its ``dropped/`` counter."""
        if host.health is Health.RETIRED:
            return 0, "crawl_delay"
        room, cap = float(count), ""
        if is_given:
            return room, cap
        if queued >= self._load.limited_from:
            room, cap = self._load.room(host.domain, _SHARES), "domain_share"
        of_frontier = self._limits.total - queued
        if of_frontier < min(count, room) and not self._may_overflow():
            return of_frontier, "frontier"
        return room, cap


def _in_overflow(host: Host) -> int:
    """Return how many entries of a host are in the overflow, where they take no places."""
    levels = host.queue.levels.items()
    return sum(level.tail - level.head for number, level in levels if number >> 8 <= OVERFLOW)
