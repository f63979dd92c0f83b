"""Which hosts lose URLs to the caps."""

from __future__ import annotations

from collections import Counter, defaultdict

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
