"""What became of the pages and of the seeds of a crawl, over all its starts: for its report."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from krowlspider.frontier.store import schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.entry_queues import Answer, Candidate, Lease
    from krowlspider.frontier.store.store import Batch, Store

# Seeds with a row of their own, and media types with a count of their own. Others count together.
SEEDS_MAX = 50_000
TYPES_MAX = 500
_OTHER = "other"
# RFC 6838, section 4.2, with shorter names.
_TYPE = re.compile(rb"\s*([A-Za-z0-9][\w!#$&^.+-]{0,49}/[A-Za-z0-9][\w!#$&^.+-]{0,79})\s*(;|$)")
# What is kept of a seed: outcome, status and location.
_encode_seed = msgspec.json.Encoder().encode
_decode_seed = msgspec.json.Decoder(tuple[str, int, str]).decode


class Tallied(NamedTuple):
    """What a commit adds: counts, and the new values of seeds by key."""

    counts: Counter[str]
    seeds: list[tuple[bytes, bytes]]


class SeedRow(NamedTuple):
    """A seed. ``outcome`` is "" while it is queued, "done", or the reason for which it was
    dropped. ``status`` and ``location`` are those of its last answer, 0 and "" without one."""

    url: str
    outcome: str
    status: int
    location: str


class Outcomes:
    """Counts the last answers of pages by status and media type, and keeps a row for each seed.

    The counts are ``status/``, ``type/`` and ``bytes/`` with a name, ``seeds`` with a row,
    ``seeds_beyond`` SEEDS_MAX, ``starts``, and ``began``: the time of the first start in epoch
    seconds. They change on disk with the commit that acknowledges the pages.
    """

    def __init__(self, store: Store, now: float):
        self.counts = read_counts(store)
        self.counts["starts"] += 1
        self.counts.setdefault("began", int(now))
        self._types = sum(name.startswith("type/") for name in self.counts)

    def given(self, candidates: Iterable[Candidate], batch: Batch) -> None:
        """Put the rows of new seeds into the batch that queues them."""
        for candidate in candidates:
            if self.counts["seeds"] < SEEDS_MAX:
                self.counts["seeds"] += 1
                batch.put(_seed_key(candidate.entry), b"")
            else:
                self.counts["seeds_beyond"] += 1
        self.put(batch, Counter())

    def tally(self, acknowledged: Iterable[tuple[Lease, str | None]]) -> Tallied:
        """Return what the acknowledgement of these pages adds."""
        # By status and header, as nearly all pages have the same few.
        sizes: dict[tuple[int, bytes | None], list[int]] = {}
        seeds = []
        for lease, dropped in acknowledged:
            entry, answer = lease.entry, lease.answer
            if answer is not None:
                sizes.setdefault(answer[:2], []).append(answer[3])
            if not (entry.depth or entry.redirects):
                seeds.append((_seed_key(entry), _seed_value(dropped or "done", answer)))
        counts: Counter[str] = Counter()
        for (status, media_type), some in sizes.items():
            kind = self._kind(media_type, counts)
            counts[f"status/{status}"] += len(some)
            counts[f"type/{kind}"] += len(some)
            counts[f"bytes/{kind}"] += sum(some)
        return Tallied(counts, seeds)

    def _kind(self, media_type: bytes | None, counts: Counter[str]) -> str:
        if media_type is None:
            return "none"
        found = _TYPE.match(media_type)
        kind = "invalid" if found is None else found[1].decode().lower()
        name = f"type/{kind}"
        if name in self.counts or name in counts:
            return kind
        if self._types >= TYPES_MAX:
            return _OTHER
        self._types += 1
        return kind

    def put(self, batch: Batch, added: Counter[str]) -> None:
        """Put the counts into a batch, with those that it adds."""
        batch.put(schema.OUTCOMES, json.dumps(self.counts + added).encode())


def put_seeds(store: Store, seeds: Iterable[tuple[bytes, bytes]], batch: Batch) -> None:
    """Put the new values of the seeds that have a row into a batch. This reads the store."""
    for key, value in seeds:
        if store.get(key) is not None:
            batch.put(key, value)


def read_counts(store: Store) -> Counter[str]:
    return Counter(json.loads(store.get(schema.OUTCOMES) or b"{}"))


def read_seeds(store: Store) -> Iterator[SeedRow]:
    """Yield the rows of the seeds, in the order of their URLs."""
    for key, value in store.items(schema.SEED):
        found = _decode_seed(value) if value else ("", 0, "")
        yield SeedRow(key[1:].decode(), *found)


def read_seed(store: Store, url: str) -> SeedRow | None:
    """Return the row of the seed with a URL; None if there is none."""
    value = store.get(schema.SEED + url.encode())
    if value is None:
        return None
    return SeedRow(url, *(_decode_seed(value) if value else ("", 0, "")))


def _seed_key(entry: Entry) -> bytes:
    return schema.SEED + entry.url.encode()


def _seed_value(outcome: str, answer: Answer | None) -> bytes:
    status, location = 0, ""
    if answer is not None:
        status = answer.status
        location = (answer.location or b"").decode("latin-1")
    return _encode_seed((outcome, status, location))
