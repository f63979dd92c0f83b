"""Which domains fill the frontier: how many URLs are queued for each, the large ones at least."""

from __future__ import annotations

import json
from heapq import nlargest
from typing import TYPE_CHECKING

from krowlspider.frontier.schema import LOAD

if TYPE_CHECKING:
    from krowlspider.frontier.store import Batch, Store

# Domains that are counted in memory, about 150 bytes each. With more, the smaller half is forgotten
# and counts from 0 again.
DOMAINS_IN_MEMORY = 65_536
# Domains that have one in so many parts of a share are kept on disk.
_KEPT = 50
# The part of the frontier that may be filled without a thought of whose URLs they are.
_FREE = 0.5


class DomainLoad:
    """URLs that are queued or leased, by registrable domain.

    Once the frontier is half full, a domain that has ``share`` of its ``total`` places gets no
    more; 0 is no limit, and no cost.
    """

    def __init__(self, store: Store, share: float, total: int):
        self._most = int(share * total)
        self._from = int(_FREE * total)
        self._large_from = max(1, self._most // _KEPT)
        self._counts: dict[str, int] = {}
        self._kept: dict[str, int] = {}
        if self._most and (saved := store.get(LOAD)) is not None:
            self._counts = json.loads(saved)
            self._kept = dict(self._counts)
        self._large = set(self._kept)

    def room(self, domain: str, queued: int) -> int | None:
        """How many more URLs a domain may have, with so many ``queued`` in all; None: any
        number."""
        if not self._most or queued < self._from:
            return None
        return max(0, self._most - self._counts.get(domain, 0))

    def add(self, domain: str, urls: int) -> None:
        """Count more URLs of a domain."""
        if self._most:
            counts = self._counts
            counts[domain] = count = counts.get(domain, 0) + urls
            if count >= self._large_from:
                self._large.add(domain)
            if len(counts) > DOMAINS_IN_MEMORY:
                half = nlargest(DOMAINS_IN_MEMORY // 2, counts.items(), key=lambda item: item[1])
                self._counts = dict(half)

    def take(self, domain: str, urls: int = 1) -> None:
        """URLs of a domain are gone."""
        if (count := self._counts.get(domain)) is not None:
            if count > urls:
                self._counts[domain] = count - urls
            else:
                del self._counts[domain]

    def put(self, batch: Batch) -> None:
        """Have the batch keep the large ones, where they have changed."""
        if not self._large:
            return
        counts = self._counts
        self._large = {name for name in self._large if counts.get(name, 0) >= self._large_from}
        kept = {name: counts[name] for name in self._large}
        if kept != self._kept:
            self._kept = kept
            batch.put(LOAD, json.dumps(kept).encode())
