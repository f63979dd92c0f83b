"""The words of seeds, and what was fetched from each seed that has words.

It is loaded only where a seed has words. A page finds its words by the key of its seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from krowlspider.frontier.entry_queues import NOT_MODIFIED, PAGE
from krowlspider.frontier.store import schema
from krowlspider.urls.seeds import SeedWords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.store.store import Batch, Store

# Seeds that are kept in memory, besides those that have pages in flight or not committed.
_KEPT = 10_000
# The reasons of drops.
DEPTH = "seed_depth"
PAGES = "seed_pages"
# The words that left URLs out, by the reason.
WORDS = {DEPTH: "depth", PAGES: "max_pages"}

_COUNTED = (PAGE, NOT_MODIFIED)

_encode = msgspec.json.Encoder().encode


class SeedFetches(msgspec.Struct, array_like=True):
    """What was fetched from a seed: its pages without redirects, sitemaps, requisites and files for
    robots. ``size`` is the bytes of their answers as received.

    ``first`` and ``last`` are the begin of the first and the last fetch of a page, in epoch
    seconds; 0 without one. ``deep`` and ``surplus`` count the URLs that its depth and its number of
    pages have left out. A page that is fetched again counts in ``last`` alone.
    """

    pages: int = 0
    size: int = 0
    first: float = 0.0
    last: float = 0.0
    deep: int = 0
    surplus: int = 0

    @property
    def left_out(self) -> dict[str, int]:
        """Return how many URLs each word has left out, by its name; without those of none."""
        left = {WORDS[DEPTH]: self.deep, WORDS[PAGES]: self.surplus}
        return {name: count for name, count in left.items() if count}

    def add(self, other: SeedFetches) -> None:
        """Add what another node has fetched."""
        self.pages += other.pages
        self.size += other.size
        self.first = min(self.first or other.first, other.first or self.first)
        self.last = max(self.last, other.last)
        self.deep += other.deep
        self.surplus += other.surplus


class _Saved(msgspec.Struct, omit_defaults=True):
    """Words on disk; ``learned``: another node has sent them, and no person gave them here."""

    words: SeedWords
    learned: bool = False


_decode_saved = msgspec.json.Decoder(_Saved).decode
_decode_fetched = msgspec.json.Decoder(SeedFetches).decode


class WordedSeed:
    """A seed with words. ``taken`` are its pages that are done, and those in flight."""

    __slots__ = ("fetched", "learned", "taken", "words")

    def __init__(self, saved: _Saved, fetched: SeedFetches):
        self.words = saved.words
        self.learned = saved.learned
        self.fetched = fetched
        self.taken = fetched.pages

    def refusal(self, depth: int) -> str:
        """Return the reason why a URL at this depth is not queued; "" if it may be."""
        words = self.words
        if words.depth is not None and depth > words.depth:
            return DEPTH
        if words.max_pages is not None and self.fetched.pages >= words.max_pages:
            return PAGES
        return ""


class WordedSeeds:
    """The seeds with words, by the keys of `SeedNames`; ``key_of`` returns that of a URL, and
    ``identify`` its identity.

    What was fetched is written with the batch that acknowledges it, and so survives a kill as the
    pages do. Other nodes count their own.
    """

    def __init__(
        self, store: Store, key_of: Callable[[str], bytes], identify: Callable[[str], bytes]
    ):
        self._store = store
        self._key_of = key_of
        self._identify = identify
        self._known: dict[bytes, WordedSeed | None] = {}
        # Changed since the last batch, and changed in a batch that may not be on disk.
        self._changed: dict[bytes, WordedSeed] = {}
        self._writing: dict[bytes, WordedSeed] = {}

    # --- words ---

    def give(self, given: Iterable[tuple[str, SeedWords | None]]) -> None:
        """Set the words of seeds, which a person gives; with None, a seed loses those it has."""
        said = {self._key_of(url): words for url, words in given}
        # Before the batch: what is read from now on is what it has.
        lost = {key for key, words in said.items() if words is None and self.of(key) is not None}
        batch = self._store.batch()
        for key, words in said.items():
            if words is not None or key in lost:
                self._set(key, _Saved(words or SeedWords()), batch)
        batch.write()

    def learn(self, url: str, words: SeedWords) -> None:
        """Set the words of a seed, as another node says, unless a person has given some here."""
        key = self._key_of(url)
        known = self.of(key)
        if key and (known is None or (known.learned and known.words != words)):
            batch = self._store.batch()
            self._set(key, _Saved(words, learned=True), batch)
            batch.write()

    def _set(self, key: bytes, saved: _Saved, batch: Batch) -> None:
        batch.put(schema.seed_words_key(key), _encode(saved))
        # One that is not in memory is read when it is asked for: a file may have a million.
        known = self._known.get(key)
        if known is None:
            self._known.pop(key, None)
        else:
            known.words, known.learned = saved.words, saved.learned

    def of(self, key: bytes) -> WordedSeed | None:
        """Return the seed with a key; None if it has no words, or the key is empty."""
        try:
            return self._known[key]
        except KeyError:
            pass
        if not key:
            return None
        if len(self._known) >= 2 * _KEPT:
            self._forget()
        saved = self._store.get(schema.seed_words_key(key))
        found = saved and WordedSeed(_decode_saved(saved), _read_fetched(self._store, key))
        self._known[key] = found or None
        return found or None

    def _forget(self) -> None:
        """Keep the seeds whose figures are not on disk yet, and some others."""
        self._known = {
            key: seed
            for key, seed in self._known.items()
            if seed is not None
            and (seed.taken != seed.fetched.pages or key in self._changed or key in self._writing)
        }

    def key_of_entry(self, entry: Entry) -> bytes:
        """Return the key of the seed that an entry came from, which may be itself; empty for none
        that is known."""
        if entry.seed or not entry.is_seed:
            return entry.seed
        return self._identify(entry.url)[: schema.SEED_SIZE]

    def of_entry(self, entry: Entry) -> WordedSeed | None:
        """Return the seed that an entry came from; None if it has no words."""
        return self.of(self.key_of_entry(entry))

    def priority(self, key: bytes) -> int:
        """Return the priority of what is found from a seed."""
        seed = self.of(key)
        return 0 if seed is None else seed.words.priority

    def refuse(self, key: bytes, depth: int, reasons: list[str | None]) -> list[str | None]:
        """Return the reasons why URLs that are found from a seed are not queued, with those of its
        words for the ones that have none; None if a URL may be."""
        seed = self.of(key)
        if seed is None or not (reason := seed.refusal(depth)):
            return reasons
        self.leave_out(key, reason, reasons.count(None))
        return [each or reason for each in reasons]

    # --- limits at the pop ---

    def refusal(self, entry: Entry) -> str | None:
        """Return the reason to drop a popped page; "" if it may be fetched; None if its seed may
        have no page left, which is not known before others in flight have ended.

        Files that are no pages, requests that a page waits for, and pages that are fetched again
        are never refused.
        """
        if entry.request and (entry.file or entry.is_awaited or entry.is_again):
            return ""
        seed = self.of_entry(entry)
        if seed is None:
            return ""
        most = seed.words.max_pages
        reason = seed.refusal(entry.depth)
        if not reason and most is not None and seed.taken >= most:
            return None
        return reason

    def take(self, entry: Entry) -> None:
        """Count a page that was popped."""
        if not entry.is_again and (seed := self.of_entry(entry)) is not None:
            seed.taken += 1

    def give_back(self, entry: Entry) -> None:
        """Count off a page that was popped, and is not done."""
        if not entry.is_again and (seed := self.of_entry(entry)) is not None:
            seed.taken -= 1

    # --- what was fetched ---

    def leave_out(self, key: bytes, reason: str, count: int = 1) -> None:
        """Count URLs of a seed with words that are dropped for a reason of WORDS."""
        seed = self.of(key)
        if seed is None or not count:
            return
        if reason == DEPTH:
            seed.fetched.deep += count
        else:
            seed.fetched.surplus += count
        self._changed[key] = seed

    def ended(self, lease: Lease, dropped: str | None) -> None:
        """Count an entry that is acknowledged. Its kind is settled."""
        if dropped in WORDS:
            self.leave_out(self.key_of_entry(lease.entry), dropped)
            return
        if dropped is not None or lease.kind not in _COUNTED:
            return
        key = self.key_of_entry(lease.entry)
        seed = self.of(key)
        if seed is None:
            return
        fetched, answer = seed.fetched, lease.answer
        if lease.kind == PAGE and not lease.entry.is_again:
            fetched.pages += 1
            fetched.size += 0 if answer is None else answer.size
        if lease.fetched is not None:
            started = lease.fetched.started
            fetched.first = min(fetched.first or started, started)
            fetched.last = max(fetched.last, started)
        self._changed[key] = seed

    def put(self, batch: Batch) -> None:
        """Put what has changed into the batch of a commit; `committed` follows once it is written.

        The batch must have all that was acknowledged so far.
        """
        self._writing, self._changed = self._changed, {}
        for key, seed in self._writing.items():
            batch.put(schema.seed_fetched_key(key), _encode(seed.fetched))

    def committed(self) -> None:
        """Note that the last batch is on disk."""
        self._writing = {}


def read_words(store: Store, key: bytes) -> SeedWords | None:
    """Return the words of the seed with a key, from the store; None if it has none."""
    saved = store.get(schema.seed_words_key(key)) if key else None
    return None if saved is None else words_in(saved)


def words_in(saved: bytes) -> SeedWords:
    """Return the words of a seed in a value of the store."""
    return _decode_saved(saved).words


def worded(store: Store) -> Iterator[tuple[bytes, SeedWords]]:
    """Yield the keys of all seeds with words, and these."""
    for key, saved in store.items(schema.SEED_WORDS):
        yield key[1:], words_in(saved)


def fetched_from(stores: Sequence[Store], key: bytes) -> SeedFetches:
    """Return what was fetched from a seed, by all nodes whose stores these are."""
    found = SeedFetches()
    for store in stores:
        found.add(_read_fetched(store, key))
    return found


def _read_fetched(store: Store, key: bytes) -> SeedFetches:
    saved = store.get(schema.seed_fetched_key(key))
    return SeedFetches() if saved is None else _decode_fetched(saved)
