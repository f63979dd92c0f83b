"""How many URLs each domain may still take from a crawl."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.frontier.store.schema import BUDGET

if TYPE_CHECKING:
    from krowlspider.frontier.store.store import Batch, Store

# Domains whose count is kept in memory, about 150 bytes each.
_DOMAINS_IN_MEMORY = 65_536


class DomainBudget:
    """URLs that were queued for a domain, all its hosts together. ``most`` is the cap; with 0 there
    is none, and the frontier counts nothing.

    A URL that is dropped returns its place. The counts change with the batch that queues or drops,
    so they hold across restarts. A death between a drop's commit and the host's record leaves the
    count one too high.
    """

    def __init__(self, store: Store, most: int):
        self._store = store
        self.most = most
        self._counts: dict[str, int] = {}
        self._changed: set[str] = set()

    def take(self, domain: str) -> bool:
        """Count one more URL, and return True. Return False, with nothing counted, when there is no
        room."""
        count = self.count(domain)
        if count >= self.most:
            return False
        self._set(domain, count + 1)
        return True

    def give_back(self, domain: str) -> None:
        """Count one URL less: it was dropped."""
        self._set(domain, max(0, self.count(domain) - 1))

    def charge(self, domain: str, urls: int) -> None:
        """Count ``urls`` that come with a host from another frontier; a negative number leaves with
        one."""
        self._set(domain, max(0, self.count(domain) + urls))

    def count(self, domain: str) -> int:
        """Return how many URLs count against a domain's budget."""
        count = self._counts.get(domain)
        if count is None:
            saved = self._store.read((BUDGET + domain.encode(),))[0]
            count = self._counts[domain] = 0 if saved is None else int.from_bytes(saved, "big")
        return count

    def _set(self, domain: str, count: int) -> None:
        self._counts[domain] = count
        self._changed.add(domain)

    def end_batch(self, batch: Batch) -> None:
        """Put the changed counts into the batch."""
        for domain in self._changed:
            batch.put(BUDGET + domain.encode(), self._counts[domain].to_bytes(8, "big"))
        self._changed.clear()
        if len(self._counts) > _DOMAINS_IN_MEMORY:
            for domain in list(islice(self._counts, _DOMAINS_IN_MEMORY // 10)):
                del self._counts[domain]
