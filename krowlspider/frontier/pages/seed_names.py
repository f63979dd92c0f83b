"""The seeds that pages came from, by their keys."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

from krowlspider.frontier.store.schema import SEED_SIZE, seed_name_key
from krowlspider.frontier.store.store import put
from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.pages.row import PageRow
    from krowlspider.frontier.store.store import Store

# Seeds that are kept in memory.
_KEPT = 10_000


class SeedNames:
    """The URLs of the seeds whose pages have led to others.

    A queue entry and a row name their seed by its key, the begin of its identity. All nodes of a
    crawl have the same keys. ``identify`` returns the identity of a URL.
    """

    def __init__(self, store: Store, identify: Callable[[str], bytes]):
        self._store = store
        self._identify = identify
        self._keys: dict[str, bytes] = {}
        self._urls: dict[bytes, str] = {}

    def key_of(self, url: str) -> bytes:
        """Return the key of a seed, whose URL is written if it is new; empty for what is no
        normalised URL."""
        if (key := self._keys.get(url)) is not None:
            return key
        if not url or normalise(url) != url:
            return b""
        key = self._identify(url)[:SEED_SIZE]
        if not self.url_of(key):
            put(self._store, seed_name_key(key), url.encode())
        if len(self._keys) >= _KEPT:
            self._keys.clear()
        self._keys[url] = key
        return key

    def url_of(self, key: bytes) -> str:
        """Return the URL of a seed; empty for an empty key, and for one that is not known here."""
        if (url := self._urls.get(key)) is not None:
            return url
        if found := read_seed(self._store, key):
            if len(self._urls) >= _KEPT:
                self._urls.clear()
            self._urls[key] = found
        return found


def read_seed(store: Store, key: bytes) -> str:
    """Return the URL of a seed, as `SeedNames.url_of`."""
    found = store.get(seed_name_key(key)) if key else None
    return "" if found is None else found.decode()


def seed_reader(store: Store) -> Callable[[Entry | PageRow], str]:
    """Return a function that returns the URL of the seed that an entry or a row came from, which
    may be itself; empty where that is not known."""
    url_of = lru_cache(_KEPT)(partial(read_seed, store))

    def seed_of(page: Entry | PageRow) -> str:
        return url_of(page.seed) if page.seed or page.depth else page.url

    return seed_of
