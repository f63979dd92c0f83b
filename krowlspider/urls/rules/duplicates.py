"""Count byte-identical pages of a host: error pages with status 200, and mazes of one page."""

from __future__ import annotations

from array import array
from collections import OrderedDict

import xxhash

# Hosts in memory; the least recently counted one is forgotten first.
HOSTS = 16_384
# Bodies of each host in memory, the latest ones. A full host takes 1.2 kB, all hosts 20 MB.
BODIES = 64
# Each count has two bytes.
_COUNT_MAX = 0xFFFF
# Pages of a host with the same body whose links are followed. More of them are error pages with
# status 200, or a maze.
FOLLOWED_MAX = 10


class DuplicateBodies:
    """Counts equal bodies by host, in memory; a body that was forgotten is counted from 1 again."""

    def __init__(self, hosts: int = HOSTS, bodies: int = BODIES):
        self._hosts_max = hosts
        self._bodies_max = bodies
        self._hosts: OrderedDict[str, tuple[array[int], array[int]]] = OrderedDict()

    def count(self, host: str, body: bytes) -> int:
        """Count a body; return how often its host has sent it, this time included, up to 65,535."""
        digest = xxhash.xxh3_64_intdigest(body)
        known = self._hosts.pop(host, None)
        if known is None:
            known = array("Q"), array("H")
            if len(self._hosts) >= self._hosts_max:
                self._hosts.popitem(last=False)
        self._hosts[host] = known
        return _count(*known, digest, self._bodies_max)


def _count(digests: array[int], counts: array[int], digest: int, most: int) -> int:
    """Count a digest, make it the latest one, and return its count."""
    try:
        place = digests.index(digest)
    except ValueError:
        number = 1
        if len(digests) == most:
            del digests[0], counts[0]
    else:
        number = min(counts[place] + 1, _COUNT_MAX)
        del digests[place], counts[place]
    digests.append(digest)
    counts.append(number)
    return number
