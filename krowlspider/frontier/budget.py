"""How many URLs each domain may still add to a crawl."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.frontier.store.schema import BUDGET

if TYPE_CHECKING:
    from krowlspider.frontier.store.store import Batch, Store

# Domains whose count is kept in memory, about 150 bytes each.
_DOMAINS_IN_MEMORY = 65_536


class DomainBudget:
    """The URLs that count against each domain, at most ``most``; with 0 the frontier counts none.

    A URL that is dropped counts no longer. The counts change in the batches that queue or drop, so
    they hold across restarts. A death between a drop's commit and the host's record leaves a count
    one too high.
    """

    def __init__(self, store: Store, most: int):
        self._store = store
        self.most = most
        self._counts: dict[str, int] = {}
        self._changed: set[str] = set()

    def take(self, domain: str) -> bool:
        """Count one more URL; return False, with nothing counted, when there is no room."""
        if self.count(domain) >= self.most:
            return False
        self.charge(domain, 1)
        return True

    def charge(self, domain: str, urls: int) -> None:
        """Count more URLs of a domain, or fewer for a negative number."""
        self._counts[domain] = max(0, self.count(domain) + urls)
        self._changed.add(domain)

    def count(self, domain: str) -> int:
        """Return how many URLs count against a domain."""
        if domain not in self._counts:
            saved = self._store.read((BUDGET + domain.encode(),))[0]
            self._counts[domain] = int.from_bytes(saved or b"", "big")
        return self._counts[domain]

    def end_batch(self, batch: Batch) -> None:
        """Put the changed counts into the batch."""
        for domain in self._changed:
            batch.put(BUDGET + domain.encode(), self._counts[domain].to_bytes(8, "big"))
        self._changed.clear()
        if len(self._counts) > _DOMAINS_IN_MEMORY:
            for domain in list(islice(self._counts, _DOMAINS_IN_MEMORY // 10)):
                del self._counts[domain]
