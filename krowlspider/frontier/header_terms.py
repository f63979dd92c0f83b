"""What hosts say about the use of their pages by headers of these pages."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.frontier.store.schema import terms_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krowlspider.frontier.store.store import Batch, Store

# Terms kept of a host, and hosts in memory, about 1 kB each.
_TERMS_MAX = 10
_HOSTS_MAX = 16_384
# Characters of the URL that is kept with a term.
_URL_MAX = 300


class HeaderTerms:
    """Keeps the different terms of each host, each with the URL of the first page that has it.

    They change on disk with the next commit. Another node that takes over the host finds its own.
    """

    def __init__(self, store: Store):
        self._store = store
        self._hosts: dict[str, dict[str, str]] = {}
        self._changed: set[str] = set()

    def note(self, host: str, terms: Iterable[str], url: str) -> None:
        """Keep the terms of a page."""
        if (known := self._hosts.get(host)) is None:
            known = self._hosts[host] = _read(self._store, host)
        for term in terms:
            if term not in known and len(known) < _TERMS_MAX:
                known[term] = url[:_URL_MAX]
                self._changed.add(host)

    def put(self, batch: Batch) -> None:
        """Put what has changed into the batch of a commit."""
        for host in self._changed:
            batch.put(terms_key(host), json.dumps(self._hosts[host]).encode())
        if (over := len(self._hosts) - _HOSTS_MAX) > 0:
            for host in list(islice(self._hosts, over)):
                # Those of this batch may not be on disk when they are asked for.
                if host not in self._changed:
                    del self._hosts[host]
        self._changed.clear()

    def forget(self, host: str, batch: Batch) -> None:
        """Put the removal of the terms of a host into the batch."""
        self._hosts.pop(host, None)
        self._changed.discard(host)
        batch.delete(terms_key(host))


def terms_of(store: Store, host: str) -> list[str]:
    """Return the terms of a host, each with the URL of the first page that had it."""
    return [f"{term} (by a header of {url})" for term, url in _read(store, host).items()]


def _read(store: Store, host: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(store.get(terms_key(host)) or b"{}")
    return found
