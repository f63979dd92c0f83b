"""How many URLs are queued for each domain, for the large domains at least: a few must not fill the
frontier."""

from __future__ import annotations

import json
from heapq import nlargest
from math import inf
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host_record import queued_in
from krowlspider.frontier.store.queues import records
from krowlspider.frontier.store.schema import LOAD
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from krowlspider.frontier.store.store import Batch, Store

# Domains counted in memory, about 150 bytes each. With more, the smaller half is forgotten and
# counts from 0 again.
DOMAINS_IN_MEMORY = 65_536
# A domain is kept on disk once it has this part of its share: one in so many.
_KEPT = 50
# The part of the frontier that fills up before any domain is limited.
_FREE = 0.5


class DomainLoad:
    """URLs that are queued or leased, by registrable domain.

    Once the frontier is half full, a domain that has ``share`` of its ``total`` places gets no
    more, only as much again in the overflow. Other domains' links in the overflow leave it half of
    that room at any time. A ``share`` of 0 is no limit, and nothing is counted.
    """

    def __init__(self, store: Store, share: float, total: int):
        self._most = int(share * total)
        # URLs in the whole frontier from which on a domain is limited.
        self.limited_from = int(_FREE * total) if self._most else total
        self._large_from = max(1, self._most // _KEPT)
        self._counts: dict[str, int] = {}
        # The counts on disk; None where they must be written anew.
        self._kept: dict[str, int] | None = None
        if self._most and (saved := store.get(LOAD)) is not None:
            self._counts = json.loads(saved)
            self._kept = dict(self._counts)
        elif self._most:
            self._count(store)
        self._large = {name for name, count in self._counts.items() if count >= self._large_from}

    def _count(self, store: Store) -> None:
        """Count from the host records: after a change by hand, the disk has no counts."""
        for host, record in records(store):
            if queued := queued_in(record)[0]:
                self._increase(domain_of(host), queued)

    def room(self, domain: str, shares: int) -> float:
        """Return how many more URLs a domain may have, up to so many times its share; inf for any
        number."""
        return max(0, shares * self._most - self._counts.get(domain, 0)) if self._most else inf

    def add(self, domain: str, urls: int) -> None:
        """Count more URLs of a domain."""
        if self._most and self._increase(domain, urls) >= self._large_from:
            self._large.add(domain)

    def _increase(self, domain: str, urls: int) -> int:
        counts = self._counts
        counts[domain] = count = counts.get(domain, 0) + urls
        if len(counts) > DOMAINS_IN_MEMORY:
            half = nlargest(DOMAINS_IN_MEMORY // 2, counts.items(), key=lambda item: item[1])
            self._counts = dict(half)
        return count

    def take(self, domain: str, urls: int = 1) -> None:
        """Subtract URLs of a domain that are no longer queued or leased."""
        if (count := self._counts.get(domain)) is not None:
            if count > urls:
                self._counts[domain] = count - urls
            else:
                del self._counts[domain]

    def put(self, batch: Batch) -> None:
        """Put the counts of large domains into the batch, where they have changed."""
        if not self._most:
            return
        counts = self._counts
        self._large = {name for name in self._large if counts.get(name, 0) >= self._large_from}
        kept = {name: counts[name] for name in self._large}
        if kept != self._kept:
            self._kept = kept
            batch.put(LOAD, json.dumps(kept).encode())
