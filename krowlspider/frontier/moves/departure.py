"""Hand hosts over to other frontiers: cut them into chunks, and remove them once they have arrived.

A departing host is sealed: nothing of it is popped or added. So it is always cut into the same
chunks, by the next process too, and the number of those that have arrived says where to go on.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_64_digest

from krowlspider.frontier.entry import Entry
from krowlspider.frontier.hosts.host import IN_FLIGHT, SEALED, Host
from krowlspider.frontier.hosts.host_record import HostPositions, encode_host
from krowlspider.frontier.moves.chunks import (
    CHUNK_BYTES,
    CHUNK_ITEMS,
    KEYS_AN_ITEM,
    ROBOTS_MAX,
    Chunk,
    EntryItem,
    HostRecord,
    stays,
)
from krowlspider.frontier.moves.transfer import entries_of, give_up
from krowlspider.frontier.pages.row import is_later, read_row
from krowlspider.frontier.pages.seed_names import read_seed
from krowlspider.frontier.seed_table import states_of
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import KEY_SIZE, authorities_of, split_queue_key
from krowlspider.frontier.store.store import Store, records
from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.moves.chunks import Identify
    from krowlspider.frontier.robots.fetches import RobotsFetches

# Host records looked at in one step of `Departures.moving`.
_STEP = 500
# Bytes of an entry in a chunk, besides twice those on disk, and of an identity.
_ENTRY_OVERHEAD = 100
_KEY_LENGTH = 11


class Departures:
    """The hosts that leave a frontier; ``most`` is the number of entries in a chunk.

    ``under_way`` has the sealed hosts. ``kept`` counts entries that no other node can read, by
    host: they stay.
    """

    def __init__(
        self,
        frontier: Frontier,
        store: Store,
        robots_fetches: RobotsFetches,
        *,
        node: str,
        identify: Identify,
        most: int = CHUNK_ITEMS,
    ):
        self.frontier = frontier
        self.store = store
        self._robots_fetches = robots_fetches
        self.node = node
        self.identify = identify
        self.most = most
        self.under_way: dict[str, Departure] = {}
        self.kept: dict[str, int] = {}

    @property
    def has_hosts(self) -> bool:
        return next(records(self.store), None) is not None

    def moving(
        self,
        owner_of: Callable[[str], str | None],
        ranges: Iterable[tuple[int, int]] | None = None,
    ) -> Iterator[list[tuple[str, str]]]:
        """Yield the hosts that other nodes own, in lists of (host, owner), which may be empty.

        ``owner_of`` returns the owner of a domain, None for this node. ``ranges``: first and last
        positions that cover all domains of other nodes. Until one scan with ``ranges`` has run to
        its end, each scan reads all records, and makes the index of positions; later ones read the
        ranges only. None: read all records, and leave the index alone.
        """
        # First, because they may get a record before the last step.
        unrecorded = self._unrecorded()
        yield self._others(unrecorded, owner_of)
        positions = self.frontier.schedule.cache.positions
        if ranges is None:
            steps = self._all()
        elif positions.is_complete:
            steps = positions.within(ranges)
        else:
            steps = self._indexed(positions)
        for names in steps:
            yield self._others([name for name in names if name not in unrecorded], owner_of)

    def _all(self) -> Iterator[list[str]]:
        """Yield the hosts that have a record, in lists."""
        after = ""
        while names := [name for name, _ in islice(records(self.store, after), _STEP)]:
            after = names[-1]
            yield names

    def _indexed(self, positions: HostPositions) -> Iterator[list[str]]:
        """Yield as `_all`, and make the index of their positions meanwhile."""
        positions.begin()
        for names in self._all():
            positions.add(names)
            yield names
        positions.finish()

    def _unrecorded(self) -> dict[str, None]:
        """Return the busy hosts that have no record, such as one asked for another's robots.txt."""
        return {
            host.name: None
            for host in self.frontier.schedule.cache.hosts.values()
            if (host.robots.fetches or host.state is IN_FLIGHT)
            and self.store.get(schema.host_key(host.name)) is None
        }

    def _others(
        self, names: Iterable[str], owner_of: Callable[[str], str | None]
    ) -> list[tuple[str, str]]:
        found = [(name, owner_of(domain_of(name))) for name in names]
        return [
            (name, owner)
            for name, owner in found
            if owner is not None and name not in self.under_way and name not in self.kept
        ]

    def begin(self, name: str) -> Departure:
        """Seal a host, and give up its robots fetches.

        :raises HostBusyError: it has a request in flight or pages that are not acknowledged
        """
        self._robots_fetches.abandon(name)
        self._robots_fetches.call_back(name)
        host = self.frontier.schedule.ownership.seal(name)
        departure = self.under_way[name] = Departure(self, host)
        return departure

    def stop(self) -> None:
        """End all departures, because the ring has changed.

        Hosts whose removal has begun are removed, the others stay. If one is handed over later, it
        is merged with what has arrived.
        """
        self.kept.clear()
        for departure in list(self.under_way.values()):
            if departure.is_ending:
                for _ in departure.end():
                    pass
            else:
                departure.abort()


class Departure:
    """One host that leaves. ``transfer`` is the same for the same host in the same state."""

    def __init__(self, departures: Departures, host: Host):
        self._all = departures
        self._frontier = departures.frontier
        self._host = host
        # By the record: another process that finds the host unchanged goes on with this transfer.
        state = host.record or encode_host(host)
        self.transfer = xxh3_64_digest(departures.node.encode() + b"\0" + state)
        self._begin_cut()
        self._steps: Iterator[None] | None = None
        self.is_ending = False

    def _begin_cut(self) -> None:
        self._cut = self._chunks()
        # Keys of entries that no other node can read, as found in the cut.
        self._stays: dict[bytes, None] = {}
        # The chunk that was cut last, and its number.
        self._last: Chunk | None = None
        self._number = -1

    def skip(self, arrived: int) -> Iterator[None]:
        """Cut the chunks up to that number, one in each step; `chunk` cuts all in one call."""
        if arrived < self._number:
            # The other node has lost chunks that were not durable.
            self._begin_cut()
        while self._number < arrived and (chunk := next(self._cut, None)) is not None:
            self._last = chunk
            self._number += 1
            yield

    def chunk(self, arrived: int) -> Chunk | None:
        """Return the chunk to send when so many have arrived; None when that is all: call `end`.

        :raises ValueError: the departure was ended
        :raises LookupError: the host has fewer chunks than have arrived
        """
        if self._host.state is not SEALED:
            raise ValueError(f"{self._host.name} is not under way")
        for _ in self.skip(arrived):
            pass
        if arrived > self._number + 1:
            raise LookupError(f"{self._host.name} has {self._number + 1} chunks, not {arrived}")
        return self._last if arrived == self._number else None

    def begin_again(self) -> None:
        """Send everything in another transfer: the count of arrived chunks was wrong."""
        self.transfer = xxh3_64_digest(self.transfer)
        self._begin_cut()

    def _chunks(self) -> Iterator[Chunk]:
        now = self._frontier.now()
        number = size = 0
        items: dict[str, list[Any]] = defaultdict(list)
        for kind, most, length, item in self._items(now):
            if size + length > CHUNK_BYTES or len(items[kind]) >= most:
                yield self._chunk(number, items, now, last=False)
                number, size = number + 1, 0
                items.clear()
            items[kind].append(item)
            size += length
        yield self._chunk(number, items, now, last=True)

    def _chunk(self, number: int, items: dict[str, list[Any]], now: float, *, last: bool) -> Chunk:
        host = self._host
        chunk = Chunk(host=host.name, transfer=self.transfer.hex(), number=number, last=last)
        chunk.robots, chunk.entries = items["robots"], items["entries"]
        chunk.seeds, chunk.pages = items["seeds"], items["pages"]
        chunk.seed_names = items["seed_names"]
        chunk.done = b"".join(items["done"])
        if number == 0:
            quotas = self._frontier.quotas
            used = None if quotas is None else quotas.of_host(host.name)
            chunk.record = HostRecord.of(host, now, used)
        return chunk

    def _items(self, now: float) -> Iterator[tuple[str, int, int, Any]]:
        """Yield field, the most that a chunk may have in it, bytes in JSON, and item."""
        name, most, identify = self._host.name, self._all.most, self._all.identify
        both = authorities_of(name)
        robots = self._all.store.read(map(schema.robots_key, both))
        for authority, record in zip(both, robots, strict=True):
            if record is not None and len(record) <= ROBOTS_MAX:
                yield "robots", most, -(-len(record) // 3) * 4, (authority, record)
        for seed in states_of(self._all.store, name):
            yield "seeds", most, 2 * sum(map(len, seed)), seed
        queued: set[bytes] = set()
        named: set[bytes] = {b""}
        for state, key, value in entries_of(self._frontier, name):
            entry = Entry.decode(value, name)
            if stays(entry, identify):
                self._stays[key] = None
                continue
            # A page that is fetched again is done: a link to it is not.
            is_new = state == "queued" and not entry.is_again
            identity = identify(entry) if is_new else None
            free = identity in queued
            if identity is not None:
                queued.add(identity)
            item = EntryItem.of_entry(entry, split_queue_key(key)[0], state)
            item.strikes, item.free, item.seed_key = entry.strikes, free, entry.seed
            yield from self._seed_name(self._seed_key(entry), named)
            if entry.due:
                # An entry that is due goes before those that were not tried.
                item.wait = max(0.0, entry.due - now)
            length = 2 * len(value) + len(name) * (2 + len(entry.chain)) + _ENTRY_OVERHEAD
            yield "entries", most, length, item
        for key, row in self._all.store.items(schema.page_prefix(name)):
            if (page := read_row(row, name, key)) is not None:
                yield from self._seed_name(page.seed, named)
            elif not is_later(row):
                continue
            yield "pages", most, (len(row) + _KEY_LENGTH) * 4 // 3, (key[-KEY_SIZE:], row)
        for identity in schema.marked_by(self._all.store.items(schema.seen_prefix(name))):
            if identity not in queued:
                yield "done", most * KEYS_AN_ITEM, _KEY_LENGTH, identity

    def _seed_name(self, key: bytes, named: set[bytes]) -> Iterator[tuple[str, int, int, str]]:
        """Yield an item as `_items` for the URL of a seed that is not ``named``, and name it."""
        if key not in named:
            named.add(key)
            if url := read_seed(self._all.store, key):
                names = self._frontier.seed_names
                seed = None if names is None or names.words is None else names.words.of(key)
                line = url if seed is None else f"{url}\t{seed.words.text()}"
                yield "seed_names", self._all.most, 2 * len(line), line

    def _seed_key(self, entry: Entry) -> bytes:
        """Return the key of the seed that an entry came from; of a seed, its own if it has words,
        else none."""
        names = self._frontier.seed_names
        if entry.seed or names is None or names.words is None:
            return entry.seed
        key = names.words.key_of_entry(entry)
        return b"" if names.words.of(key) is None else key

    def end(self) -> Iterator[None]:
        """Remove the host, which has arrived, some in each step. A restart completes it."""
        if self._steps is None:
            self._steps = self._removal()
        return self._steps

    def _removal(self) -> Iterator[None]:
        self.is_ending = True
        host = self._host
        kept = yield from give_up(self._frontier, host, self._stays, moves=True)
        del self._all.under_way[host.name]
        if kept:
            self._all.kept[host.name] = kept
            self._frontier.schedule.ownership.unseal(host)
        else:
            self._frontier.schedule.cache.remove(host)

    def abort(self) -> None:
        """Keep the host here, with everything it has."""
        del self._all.under_way[self._host.name]
        self._frontier.schedule.ownership.unseal(self._host)
