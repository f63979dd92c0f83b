"""What became of each seed: a row for each line that gave one, and the state of each URL."""

from __future__ import annotations

import json
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from krowlspider.frontier.entry_queues import FELL_BACK, NOT_MODIFIED
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import authorities_of
from krowlspider.urls.canonical import host_of, identity, normalise
from krowlspider.urls.page.headers import escape_octets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.entry_queues import Candidate, Lease
    from krowlspider.frontier.store.store import Batch, Store
    from krowlspider.urls.seeds import SeedWords

# Lines with a row; others are only counted.
LINES_MAX = 1_000_000
# Sources that are told apart; the lines of others have no row.
_SOURCES_MAX = 1000
# The source of seeds that came while the crawl ran, or that a spider's own code gave.
GIVEN = "given by code or by hand"
# Hops from a seed to its final URL: more than any crawl follows.
_HOPS_MAX = 300
# Characters of a line that are kept.
_TEXT_MAX = 500
# In place of an outcome.
KNOWN = "known before"
ELSEWHERE = "of another node"

_encode = msgspec.json.Encoder().encode
# Line as it was given, its URL, and why it has none.
_decode_line = msgspec.json.Decoder(tuple[str, str, str]).decode
# Outcome, status, and the URL at which it goes on, as received.
_decode_state = msgspec.json.Decoder(tuple[str, int, str]).decode


class SeedLine(NamedTuple):
    """A line of a source.

    ``url`` is "" for a line that is no seed, and ``error`` says why. ``bare``: the line has no
    scheme, and https is a guess. ``words`` are its own, None without any; ``text`` has them not.
    """

    number: int
    text: str
    url: str
    error: str = ""
    bare: bool = False
    words: SeedWords | None = None


class SeedRow(NamedTuple):
    """A line and its end.

    ``outcome`` is that of ``url``, the last URL on the way from the seed: "" while it is queued,
    "done", KNOWN, ELSEWHERE, "invalid" for a bad line, or why it was refused or dropped. ``status``
    is that of the last answer, 0 without one. ``url`` is "" without any.
    """

    source: str
    line: SeedLine
    outcome: str
    status: int
    url: str


class SeedTable:
    """Keeps the rows.

    A source that is given again replaces its lines: a table has the lines of a file as it was read
    last. The state of a URL changes with the commit that acknowledges it.
    """

    def __init__(self, store: Store):
        self._store = store
        # Name and number of lines of each source.
        saved = json.loads(store.get(schema.SEED_SOURCES) or b"[]")
        self._sources: dict[str, int] = dict(saved)
        self._total = sum(self._sources.values())

    # --- lines ---

    def begin(self, source: str) -> None:
        """Begin to read the lines of a source anew."""
        self._total -= self._sources.get(source, 0)
        self._sources[source] = 0

    def add(self, source: str, lines: Sequence[SeedLine], *, after: int) -> None:
        """Add lines of a source, in order, to those up to number ``after``."""
        batch = self._store.batch()
        index = list(self._sources).index(source)
        if lines and index < _SOURCES_MAX:
            self._clear(index, after, lines[-1].number, batch)
        for line in lines:
            self._put_line(source, index, line, batch)
        self._put_sources(batch)
        batch.write()

    def end(self, source: str, *, after: int) -> None:
        """End a source: it has no lines behind number ``after``."""
        batch = self._store.batch()
        self._clear(list(self._sources).index(source), after, None, batch)
        batch.write()

    def _put_line(self, source: str, index: int, line: SeedLine, batch: Batch) -> None:
        if index < _SOURCES_MAX and self._total < LINES_MAX:
            value = _encode((line.text[:_TEXT_MAX], line.url, line.error))
            batch.put(schema.seed_line_key(index, line.number), value)
        self._sources[source] += 1
        self._total += 1

    def _clear(self, index: int, after: int, last: int | None, batch: Batch) -> None:
        """Remove the lines behind ``after``, up to ``last``."""
        start = schema.seed_line_key(index, after)
        stop = None if last is None else schema.seed_line_key(index, last)
        keys = self._store.keys(start[:3], start)
        for key in keys if stop is None else takewhile(lambda key: key <= stop, keys):
            batch.delete(key)

    def _put_sources(self, batch: Batch) -> None:
        batch.put(schema.SEED_SOURCES, json.dumps(list(self._sources.items())).encode())

    def give(self, urls: Iterable[str]) -> None:
        """Add a line of GIVEN for each of these seeds."""
        batch = self._store.batch()
        for url in urls:
            self._give(url, batch)
        batch.write()

    def sent(self, entries: Iterable[Entry]) -> None:
        """Note those entries that are seeds, each with a line of GIVEN: other nodes own them."""
        batch = self._store.batch()
        for entry in entries:
            if _is_of_seed(entry) and _before(entry) is None:
                if self._store.get(_key(entry.url)) is None:
                    _put_state(entry.url, _encode((ELSEWHERE, 0, "")), batch)
                self._give(entry.url, batch)
        batch.write()

    def _give(self, url: str, batch: Batch) -> None:
        number = self._sources.setdefault(GIVEN, 0) + 1
        line = SeedLine(number, url, url)
        self._put_line(GIVEN, list(self._sources).index(GIVEN), line, batch)
        self._put_sources(batch)

    # --- states ---

    def queued(self, candidates: Iterable[Candidate], batch: Batch, *, has_lines: bool) -> None:
        """Follow seeds, and the URLs at which seeds go on, which the batch queues.

        Without lines of their own, seeds get a line of GIVEN.
        """
        for entry in (candidate.entry for candidate in candidates):
            if not _is_of_seed(entry):
                continue
            before = _before(entry)
            if before is not None:
                if self._store.get(_key(before)) is None:
                    continue
            elif not has_lines:
                self._give(entry.url, batch)
            _put_state(entry.url, b"", batch)

    def follows(self, url: str) -> bool:
        """Return whether a URL has the identity of a seed, or of one at which a seed goes on, that
        was not known before."""
        found = _followed(self._store, url)
        return found is not None and not _is(KNOWN, found[1])

    def follow_from(self, url: str) -> None:
        """Follow where a seed of another node goes on from this URL, which was fetched there."""
        if self._store.get(_key(url)) is None:
            self.refused([url], ELSEWHERE)

    def unfinished(self) -> Iterator[str]:
        """Yield the URLs of seeds, and those at which seeds go on, that are queued."""
        for key, value in self._store.items(schema.SEED):
            if not value:
                yield key[1:].decode()

    def waiting(self, after: str = "") -> Iterator[str]:
        """Yield the URLs of seeds, and those at which seeds go on, that are behind ``after``; "" in
        place of one that is over, or whose host is deferred: it does not answer."""
        for key, value in self._store.items(schema.SEED, after=_key(after)):
            yield key[1:].decode() if not value and not self._is_deferred(key) else ""

    def is_waiting(self, url: str) -> bool:
        """Return whether a URL is one that `waiting` yields."""
        return self._store.get(key := _key(url)) == b"" and not self._is_deferred(key)

    def _is_deferred(self, key: bytes) -> bool:
        host = host_of(key[1:].decode())
        return self._store.get(schema.deferred_key(host)) is not None

    def refused(self, urls: Iterable[str], outcome: str, via: str = "") -> None:
        """Note URLs that are not queued, with the reason. With ``via``, that URL redirects to them:
        they are noted if it is followed."""
        if via and self._store.get(_key(via)) is None:
            return
        batch = self._store.batch()
        for url in urls:
            # While its host is handed over, the state goes with it.
            if outcome != ELSEWHERE or self._store.get(_key(url)) is None:
                _put_state(url, _encode((outcome, 0, "")), batch)
        batch.write()


def _is_of_seed(entry: Entry) -> bool:
    """Return whether an entry has the depth of a seed, and is no file that a page needs."""
    return not (entry.depth or (entry.request and entry.file))


def _before(entry: Entry) -> str | None:
    """Return the URL that goes on at this entry; None for a seed itself."""
    if entry.chain:
        return entry.chain[-1]
    if entry.bare and not entry.may_fall_back:
        return entry.url.replace("http:", "https:", 1)
    return None


def ended(lease: Lease, dropped: str | None) -> tuple[bytes, bytes] | None:
    """Return key and new state of an entry that is over; None if it is of no seed."""
    entry, answer = lease.entry, lease.answer
    if not _is_of_seed(entry) or lease.kind == NOT_MODIFIED:
        return None
    if dropped == FELL_BACK:
        state = ("", 0, entry.url.replace("https:", "http:", 1))
    else:
        status, location = 0, ""
        if answer is not None:
            status = answer.status
            if answer.location is not None:
                # An empty one leads to the page itself.
                location = escape_octets(answer.location) or entry.url
        state = (dropped or "done", status, location)
    return _key(entry.url), _encode(state)


def put_states(store: Store, states: Iterable[tuple[bytes, bytes]], batch: Batch) -> None:
    """Put the new states of the URLs that are followed into a batch. This reads the store."""
    for key, value in states:
        if store.get(key) is not None:
            batch.put(key, value)


def outcome_of(store: Store, url: str) -> str:
    """Return the outcome of a seed itself, not of where it goes on.

    It is "done", FELL_BACK, or why it was refused or dropped; "" if it is queued, or no seed of
    this node.
    """
    found = _followed(store, url)
    if found is None or not found[1]:
        return ""
    outcome, _, location = _decode_state(found[1])
    return "" if outcome in {ELSEWHERE, KNOWN} else outcome or (location and FELL_BACK)


def is_of_another_node(store: Store, url: str) -> bool:
    """Return whether a URL is a seed whose host another node owned when it was given."""
    found = _followed(store, url)
    return found is not None and _is(ELSEWHERE, found[1])


def _is(outcome: str, state: bytes) -> bool:
    return bool(state) and _decode_state(state)[0] == outcome


def _knowledge(found: tuple[str, bytes]) -> int:
    """Return a number that grows with what a node knows of a URL, given with its state there.

    Queued is more than refused, which a node without the URL may have noted in an earlier start.
    """
    state = found[1]
    if not state:
        return 3
    outcome, status, location = _decode_state(state)
    if outcome == "done" or status or location:
        return 4
    return {ELSEWHERE: 0, KNOWN: 1}.get(outcome, 2)


def states_of(store: Store, host: str) -> Iterator[tuple[str, str]]:
    """Yield the URLs of a host that are followed, each with its state, for `take_state`."""
    for root in authorities_of(host):
        for key, state in store.items(schema.SEED + f"{root}/".encode()):
            if not _is(ELSEWHERE, state):
                yield key[1:].decode(), state.decode()


def check_state(state: str) -> None:
    """:raises ValueError: the text is not from `states_of`"""
    if state:
        _decode_state(state)


def take_state(store: Store, url: str, state: str, batch: Batch) -> None:
    """Put the state of a URL from its former owner into a batch, unless this store knows more."""
    known = _followed(store, url)
    if known is None or _knowledge(known) < _knowledge((url, state.encode())):
        _put_state(url, state.encode(), batch)


def leave_states(store: Store, host: str, batch: Batch) -> None:
    """Put into a batch that the states of a host's URLs are those of its new owner."""
    for url, _ in states_of(store, host):
        batch.put(_key(url), _encode((ELSEWHERE, 0, "")))


def followed_for(store: Store, url: str) -> str | None:
    """Return the URL that is followed for a seed: itself, or another one of its identity. Return
    None if none is."""
    found = _followed(store, url)
    return None if found is None else found[0]


def line_counts(store: Store) -> dict[str, int]:
    """Return how many lines each source has, those without a row too."""
    return dict(json.loads(store.get(schema.SEED_SOURCES) or b"[]"))


def read_rows(store: Store, others: Iterable[Store] = ()) -> Iterator[SeedRow]:
    """Yield the rows, source by source, in the order of the lines. An outcome is that of the store
    that knows most: this one, or those of ``others``, other nodes of the crawl."""
    stores = [store, *others]
    sources = list(line_counts(store))
    for key, value in store.items(schema.SEED_LINE):
        index, number = schema.split_seed_line_key(key)
        text, url, error = _decode_line(value)
        line = SeedLine(number, text, url, error)
        end = ("invalid", 0, "") if line.error else _end(stores, line.url)
        yield SeedRow(sources[index], line, *end)


def _end(stores: Sequence[Store], given: str) -> tuple[str, int, str]:
    """Return outcome, status and URL at the end of the way from a seed."""
    first = _best_known(stores, given)
    if first is None:
        return KNOWN, 0, given
    outcome, status, url = _end_of_way(stores, *first)
    # Another URL of its identity is fetched in its place, and is no redirect.
    return outcome, status, given if url == first[0] else url


def _end_of_way(stores: Sequence[Store], url: str, state: bytes) -> tuple[str, int, str]:
    status = 0
    met: set[str] = set()
    while True:
        met.add(url)
        if not state:
            return "", status, url
        outcome, answer, location = _decode_state(state)
        status = answer or status
        if not location:
            return outcome, status, url
        target = normalise(location, url)
        if target is None:
            return "url", status, url
        if (found := _best_known(stores, target)) is None:
            return KNOWN, status, target
        if found[0] in met or len(met) > _HOPS_MAX:
            return "redirect_loop", status, url
        url, state = found


def _put_state(url: str, state: bytes, batch: Batch) -> None:
    """Follow a URL, and all others of its identity."""
    batch.put(_key(url), state)
    if (shared := identity(url)) != url:
        batch.put(schema.SEED_IDENTITY + shared.encode(), url.encode())


def _best_known(stores: Sequence[Store], url: str) -> tuple[str, bytes] | None:
    """Return as `_followed`, of the store that knows most."""
    found = (_followed(store, url) for store in stores)
    return max((each for each in found if each is not None), key=_knowledge, default=None)


def _followed(store: Store, url: str) -> tuple[str, bytes] | None:
    """Return the URL that is followed for this one, which may be another of the same identity, and
    its state; None if none is."""
    if (state := store.get(_key(url))) is not None:
        return url, state
    shared = identity(url)
    if shared != url and (state := store.get(_key(shared))) is not None:
        return shared, state
    if (saved := store.get(schema.SEED_IDENTITY + shared.encode())) is None:
        return None
    same = saved.decode()
    state = store.get(_key(same))
    return None if state is None else (same, state)


def _key(url: str) -> bytes:
    return schema.SEED + url.encode()
