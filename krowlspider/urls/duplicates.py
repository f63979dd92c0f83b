"""Pages of a host that are the same to the byte: error pages that say 200, and mazes of one page."""

from __future__ import annotations

from array import array
from collections import OrderedDict

import xxhash

# Hosts remembered, the latest ones ...
HOSTS = 16_384
# ... and bodies of each, the latest ones. Such a host takes 1.2 kB, all of them 20 MB.
BODIES = 64
# Counts are kept in two bytes.
_COUNT_MAX = 0xFFFF


class DuplicateBodies:
    """Counts equal bodies, by host. What it forgets, for want of room or at a new start, counts anew."""

    def __init__(self, hosts: int = HOSTS, bodies: int = BODIES):
        self._hosts_max = hosts
        self._bodies_max = bodies
        self._hosts: OrderedDict[str, tuple[array[int], array[int]]] = OrderedDict()

    def count(self, host: str, body: bytes) -> int:
        """How often a host has sent this body, this time included; 65,535 at most."""
        digest = xxhash.xxh3_64_intdigest(body)
        known = self._hosts.pop(host, None)
        if known is None:
            known = array("Q"), array("H")
            if len(self._hosts) >= self._hosts_max:
                self._hosts.popitem(last=False)
        self._hosts[host] = known
        return _count(*known, digest, self._bodies_max)


def _count(digests: array[int], counts: array[int], digest: int, most: int) -> int:
    """Count a digest and make it the latest one."""
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
