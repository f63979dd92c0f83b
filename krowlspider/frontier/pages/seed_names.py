"""The seeds that pages came from, by their keys."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

from krowlspider.frontier.seed_limits import SeedLimits
from krowlspider.frontier.store.schema import SEED_SIZE, SEED_WORDS, seed_name_key
from krowlspider.frontier.store.store import identity_seed, put
from krowlspider.urls.canonical import IdentityHasher, normalise

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.pages.row import PageRow
    from krowlspider.frontier.seed_words import WordedSeeds
    from krowlspider.frontier.store.store import Store
    from krowlspider.urls.seeds import SeedWords

# Seeds that are kept in memory.
_KEPT = 10_000


class SeedNames:
    """The URLs of the seeds whose pages have led to others.

    A queue entry and a row name their seed by its key, the begin of its identity. All nodes of a
    crawl have the same keys. ``identify`` returns the identity of a URL. ``words`` has the seeds
    with words; None while no seed has any. ``limits`` counts what limits leave out.
    """

    def __init__(self, store: Store, identify: Callable[[str], bytes]):
        self._store = store
        self._identify = identify
        self._keys: dict[str, bytes] = {}
        self._urls: dict[bytes, str] = {}
        self.limits = SeedLimits(store)
        self.words: WordedSeeds | None = None
        if has_words(store):
            self.begin_words()

    def begin_words(self) -> WordedSeeds:
        """Return ``words``, which are there from now on."""
        if self.words is None:
            # Most crawls have no seed with words.
            from krowlspider.frontier.seed_words import WordedSeeds  # noqa: PLC0415

            self.words = WordedSeeds(self._store, self.key_of, self._identify)
        return self.words

    def give_words(self, seed: str, words: SeedWords, *, is_tag: bool = False) -> None:
        """Set the words of a seed. With ``is_tag``, only its tag is known: a seed with words keeps
        its own."""
        if is_tag:
            self.begin_words().learn(seed, words)
        else:
            self.begin_words().give([(seed, words)])

    def words_at(self, entry: Entry) -> SeedWords | None:
        """Return the words of the seed that an entry came from; None if it has none."""
        seed = None if self.words is None else self.words.of_entry(entry)
        return None if seed is None else seed.words

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


def has_words(store: Store) -> bool:
    """Return whether a seed of a frontier has words."""
    return next(iter(store.keys(SEED_WORDS)), None) is not None


def keys_of_seeds(store: Store) -> Callable[[str], bytes]:
    """Return a function that returns the key of a seed by its URL; empty where the store names no
    job."""
    seed = identity_seed(store)
    hasher = None if seed is None else IdentityHasher(seed)

    def key_of(url: str) -> bytes:
        return b"" if hasher is None else hasher.key(url)[:SEED_SIZE]

    return key_of


def words_reader(store: Store) -> Callable[[Entry | PageRow], SeedWords | None] | None:
    """Return a function that returns the words of the seed that an entry or a row came from; None
    where no seed has words."""
    if not has_words(store):
        return None
    from krowlspider.frontier.seed_words import read_words  # noqa: PLC0415

    key_of, words_at = keys_of_seeds(store), lru_cache(_KEPT)(partial(read_words, store))

    def words_of(page: Entry | PageRow) -> SeedWords | None:
        return words_at(page.seed or (b"" if page.depth else key_of(page.url)))

    return words_of


def seed_reader(store: Store) -> Callable[[Entry | PageRow], str]:
    """Return a function that returns the URL of the seed that an entry or a row came from, which
    may be itself; empty where that is not known."""
    url_of = lru_cache(_KEPT)(partial(read_seed, store))

    def seed_of(page: Entry | PageRow) -> str:
        return url_of(page.seed) if page.seed or page.depth else page.url

    return seed_of
