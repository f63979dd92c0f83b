"""The chunks of a host's hand-over as JSON, and a part as the frontier that takes the host has
it.

All times are seconds from when the chunk was made, so the clocks of the two nodes may differ.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Self, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from krowlspider.frontier.entry import Count, Entry, EntryLine
from krowlspider.frontier.hosts.host import PUT_OFF_ELSEWHERE, Health, Host
from krowlspider.frontier.pages.row import DamagedRow, LaterRow, decode_row
from krowlspider.frontier.seed_table import check_state
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import (
    KEY_SIZE,
    SEED_SIZE,
    authorities_of,
    poison_prefix,
    split_keys,
    split_queue_key,
)
from krowlspider.frontier.work_mark import free_place
from krowlspider.politeness.delay import GOOD_ANSWERS, PARKED, THROTTLING_MAX, HostRate
from krowlspider.politeness.robots import RobotsRecord
from krowlspider.urls.canonical import host_of, normalise
from krowlspider.urls.robots_groups import BODY_MAX
from krowlspider.urls.seeds import SeedWords, parse_words, split_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Batch, Store

if TYPE_CHECKING:
    Identify = Callable[[Entry], bytes | None]


@dataclass(slots=True, eq=False)
class ChunkContent:
    """The content of one chunk.

    - ``name``: the host. ``transfer``: the id of its hand-over. ``number``: the place of the chunk
      in it. ``last``: no chunk follows.
    - ``host``: its record, where the chunk has one.
    - ``entries``: (priority, entry, identity); an entry without one is queued even if known.
    - ``poison``: (priority, entry). ``done``: identities that are not queued any more.
    - ``robots``: (authority, record). ``seeds``: (URL, state), as in the table of seeds. ``pages``:
      (identity, stored row). ``seed_names``: URLs of the seeds that these came from, each with its
      words, None without any.
    - ``used``: what the host has used of the limits of sheets, as in `Quotas.of_host`.
    """

    name: str
    transfer: bytes
    number: int
    last: bool
    identify: Identify
    host: Host | None = None
    entries: list[tuple[int, Entry, bytes | None]] = field(default_factory=list)
    poison: list[tuple[int, Entry]] = field(default_factory=list)
    done: list[bytes] = field(default_factory=list)
    robots: list[tuple[str, RobotsRecord]] = field(default_factory=list)
    seeds: list[tuple[str, str]] = field(default_factory=list)
    pages: list[tuple[bytes, bytes]] = field(default_factory=list)
    seed_names: list[tuple[str, SeedWords | None]] = field(default_factory=list)
    used: dict[str, Used] = field(default_factory=dict)

    def identity(self, entry: Entry) -> bytes | None:
        """Return the identity of an entry; None without one, or if only this job can read it."""
        return None if stays(entry, self.identify) else self.identify(entry)


def stays(entry: Entry, identify: Identify) -> bool:
    """Return whether an entry cannot be handed over, because no other job can read its request."""
    if not entry.request:
        return False
    try:
        identify(entry)
    except ValueError:
        return True
    return False


def put_poison(store: Store, part: ChunkContent, batch: Batch) -> None:
    """Put the poison of a part into the batch, beside that of this frontier."""
    number = sum(1 for _ in store.keys(poison_prefix(part.name)))
    for priority, entry in part.poison:
        place = free_place(store, schema.queue_key(schema.host_key(part.name), priority, number))
        batch.put(place, entry.encode(part.name))
        number = split_queue_key(place)[1] + 1


# Bytes of a chunk, unless one entry has more. Reading it as JSON takes about 1 ms.
CHUNK_BYTES = 192 * 1024
# Entries of a chunk, and identities for each of them.
CHUNK_ITEMS = 300
KEYS_AN_ITEM = 4
# Bytes of the longest robots.txt record that is handed over; the new owner fetches longer ones.
ROBOTS_MAX = 96 * 1024
# Bytes of the longest row of a page that is taken, beside two URLs.
ROW_MAX = 16_000
# The longest wait that is taken from another node: that of a parked host, with its random part.
WAIT_MAX = 2 * PARKED

# Characters of a host in a key of Redis.
_HOST_MAX = 2048

_Number = Annotated[int, Meta(ge=0, le=0xFFFFFFFF)]
_Seconds = Annotated[float, Meta(ge=0)]
# Pages, bytes, and seconds since the first page.
Used: TypeAlias = tuple[Annotated[int, Meta(ge=0)], Annotated[int, Meta(ge=0)], _Seconds]
_SeedKey = Annotated[bytes, Meta(min_length=SEED_SIZE, max_length=SEED_SIZE)]


class BadChunk(ValueError):
    """A chunk that cannot be taken; the message says why."""


class HostRecord(Struct):
    """What is known of a host.

    ``due`` is when it may be fetched, ``ready`` the end of its last wait, null if it has none.
    ``put_off``: a pause or a block covers it, so it has neither. ``pace`` has the fields of its
    rate, ``state`` is its health in lower case. ``used`` is as in `Part`.
    """

    state: str
    due: _Seconds
    ready: _Seconds | None
    pace: tuple[_Seconds, _Seconds, _Number, _Number, _Number]
    done: _Number
    dropped: _Number
    extras: _Number = 0
    put_off: bool = False
    used: dict[str, Used] = {}

    @classmethod
    def of(cls, host: Host, now: float, used: dict[str, Used] | None = None) -> Self:
        rate = host.rate
        return cls(
            state=host.health.name.lower(),
            due=0.0 if host.is_put_off else max(0.0, host.due - now),
            ready=max(0.0, host.ready - now) if host.ready and not host.is_put_off else None,
            pace=(rate.ema, rate.floor, rate.good_answers, rate.throttling, rate.saved_errors),
            done=host.queue.done,
            dropped=host.queue.dropped,
            extras=host.queue.extras,
            put_off=host.is_put_off,
            used=used or {},
        )

    def host(self, name: str, now: float) -> Host:
        """Return the host, with the times cut to what a host may have."""
        ema, floor, good_answers, throttling, errors = self.pace
        rate = HostRate.restored(
            min(ema, 1e6),
            min(floor, 1e6),
            min(good_answers, GOOD_ANSWERS - 1),
            min(throttling, THROTTLING_MAX),
            errors,
        )
        host = Host(
            name,
            rate=rate,
            due=now + min(self.due, WAIT_MAX),
            ready=0.0 if self.ready is None else now + min(self.ready, WAIT_MAX),
            health=Health[self.state.upper()],
        )
        if self.put_off:
            # Also where the order has not arrived yet.
            host.due = host.ready = PUT_OFF_ELSEWHERE
        queue = host.queue
        queue.done, queue.dropped = self.done, self.dropped
        queue.extras = min(self.extras, self.done)
        return host


class EntryItem(EntryLine, omit_defaults=True):
    """An entry; ``free`` if another one of the same identity is queued before it.

    ``wait`` is the time until its next try, missing for an entry that was never tried.
    ``seed_key`` is the key of its seed.
    """

    strikes: Count = 0
    free: bool = False
    wait: _Seconds | UnsetType = UNSET
    seed_key: _SeedKey = b""


class ChunkId(Struct):
    """What identifies a hand-over: ``transfer`` is the same for the same host in the same state."""

    host: Annotated[str, Meta(max_length=_HOST_MAX)]
    transfer: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]


class Chunk(ChunkId, kw_only=True, omit_defaults=True):
    """A part of a host.

    - ``number``: counts from 0. ``last``: no chunk follows. ``record``: in the first chunk.
    - ``robots``: pairs of authority and record. ``seeds``: pairs of URL and state. ``pages``: pairs
      of identity and stored row. ``done``: identities that are not queued any more, in a row.
    - ``seed_names``: URLs of the seeds that entries and pages, in any chunk, came from, with their
      words as in a file of seeds.
    """

    number: _Number
    last: bool
    record: HostRecord | UnsetType = UNSET
    robots: list[tuple[str, bytes]] = []
    seeds: list[tuple[str, str]] = []
    entries: list[EntryItem] = []
    pages: list[tuple[bytes, bytes]] = []
    done: bytes = b""
    seed_names: list[str] = []


encode_chunk = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Chunk).decode
_decode_id = msgspec.json.Decoder(ChunkId).decode


def decode_chunk(data: bytes) -> Chunk:
    """Return the chunk in a text of JSON.

    :raises BadChunk: it is none
    """
    try:
        return _decode(data)
    except (ValueError, RecursionError) as error:
        raise BadChunk(f"{type(error).__name__}: {error}") from error


def decode_id(data: bytes) -> ChunkId | None:
    """Return what identifies the hand-over of a bad chunk; None if the chunk does not say it."""
    try:
        return _decode_id(data)
    except (ValueError, RecursionError):
        return None


def read_chunk(chunk: Chunk, now: float, identify: Identify, *, url_max: int) -> ChunkContent:
    """Return the part of a host in a chunk; ``now`` is this node's job clock.

    :raises BadChunk: the chunk cannot be taken
    """
    try:
        return _read(chunk, now, identify, url_max)
    except (ValueError, KeyError, RecursionError, zlib.error) as error:
        raise BadChunk(f"{type(error).__name__}: {error}") from error


def _read(chunk: Chunk, now: float, identify: Identify, url_max: int) -> ChunkContent:
    name = chunk.host
    if normalise(site := f"http://{name}/") != site or host_of(site) != name:
        raise ValueError(f"{name[:80]!r} is no host")
    if len(chunk.done) % KEY_SIZE:
        raise ValueError("done is not of whole keys")
    part = ChunkContent(name, bytes.fromhex(chunk.transfer), chunk.number, chunk.last, identify)
    if chunk.record:
        part.host = chunk.record.host(name, now)
        part.used = chunk.record.used
    for authority, record in chunk.robots:
        if authority not in authorities_of(name):
            raise ValueError(f"{authority[:80]!r} is no authority of {name}")
        part.robots.append((authority, _read_robots(record)))
    own = tuple(f"{authority}/" for authority in authorities_of(name))
    for url, state in chunk.seeds:
        if not url.startswith(own) or len(url) > url_max:
            raise ValueError(f"a seed of another host than {name}, or too long")
        check_state(state)
        part.seeds.append((url, state))
    for item in chunk.entries:
        _read_entry(part, item, own, now, url_max)
    part.done = list(split_keys(chunk.done))
    for identity, row in chunk.pages:
        _check_row(identity, row, name, url_max)
    part.pages = chunk.pages
    for line in chunk.seed_names:
        url, said = split_words(line)
        if len(url) > url_max or normalise(url) != url:
            raise ValueError(f"no normalised URL of a seed: {url[:80]!r}")
        part.seed_names.append((url, parse_words(said) if said else None))
    return part


def _check_row(identity: bytes, row: bytes, name: str, url_max: int) -> None:
    """Check a stored row of a page; that of another version is kept as it is.

    :raises ValueError: it is none of the host
    """
    if len(identity) != KEY_SIZE or len(row) > ROW_MAX + 2 * url_max:
        raise ValueError("a row of a page with a false identity, or too long")
    try:
        url = decode_row(row, name).url
    except LaterRow:
        return
    except DamagedRow as error:
        raise ValueError(f"a damaged row of a page: {error}") from error
    if len(url) > url_max or normalise(url) != url or host_of(url) != name:
        raise ValueError(f"a row of another host than {name}, or a URL that is too long")


def _read_robots(data: bytes) -> RobotsRecord:
    """Return a robots.txt record, which must not unpack to more than a robots.txt may have."""
    body = zlib.decompressobj().decompress(data.partition(b"\n")[2], BODY_MAX + 2)
    if len(body) > BODY_MAX + 1:
        raise ValueError("a robots.txt that is too long")
    return RobotsRecord.decode(data)


def _read_entry(
    part: ChunkContent, item: EntryItem, own: tuple[str, ...], now: float, url_max: int
) -> None:
    """Add an entry to the part; ``own`` are the roots of the URLs of its host."""
    entry = item.entry(url_max)
    # The name of a host may be written in two ways.
    if not entry.url.startswith(own) and host_of(entry.url) != part.name:
        raise ValueError(f"a URL of another host than {part.name}")
    entry.strikes, entry.seed = item.strikes, item.seed_key
    if item.wait is not UNSET:
        entry.due = now + min(item.wait, WAIT_MAX)
    key = part.identify(entry)
    if item.state == "poison":
        part.poison.append((item.priority, entry))
    else:
        is_free = item.free or entry.is_again
        part.entries.append((item.priority, entry, None if is_free else key))
