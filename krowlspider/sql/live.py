"""Read the rows of a frontier's tables from its parts, and write them to Parquet files."""

from __future__ import annotations

from base64 import b32encode
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from krowlspider.catalogue.columns import Column
from krowlspider.errors import need
from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.hosts.host_record import decode_host
from krowlspider.frontier.pages.row import read_row
from krowlspider.frontier.seed_words import words_in
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import SEED_SIZE, host_in, host_of_page, split_queue_key
from krowlspider.frontier.store.store import Store, all_entries
from krowlspider.sql.tables import LIVE
from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from krowlspider.politeness.delay import DelayPolicy
    from krowlspider.urls.canonical import IdentityHasher

    Pairs = Iterator[tuple[bytes, bytes]]

# Rows that are written at a time.
_ROWS = 20_000
_LAST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_DAY = 86_400.0
# What joins a row with its seed: the number of its frontier, and the key of the seed.
_JOINED = (Column("source", "integer"), Column("seed_key", "text"))
_KEYED = (Column("source", "integer"), Column("key", "text"))
# The files that are written, with their columns.
WRITTEN: dict[str, tuple[Column, ...]] = {
    "queue": (*LIVE["queue"], *_JOINED),
    "page_now": (*LIVE["page_now"], *_JOINED),
    "host_now": LIVE["host_now"],
    "seeds": (*_KEYED, Column("url", "text")),
    "words": (*_KEYED, Column("tag", "text")),
}
# What each part is written to.
FILE_OF = {
    "hosts": "host_now",
    "queue": "queue",
    "poison": "queue",
    "pages": "page_now",
    "seeds": "seeds",
    "words": "words",
}


def _records(store: Store) -> Pairs:
    return (item for item in store.firsts(schema.QUEUE) if schema.is_record(item[0]))


# The parts of a frontier in its store: host records; queued entries, and those that are set aside;
# rows of pages; the URLs and the words of seeds.
RANGES: dict[str, Callable[[Store], Pairs]] = {
    "hosts": _records,
    "queue": all_entries,
    "poison": lambda store: store.items(schema.POISON),
    "pages": lambda store: store.items(schema.PAGES),
    "seeds": lambda store: store.items(schema.SEED_NAME),
    "words": lambda store: store.items(schema.SEED_WORDS),
}


class FrontierSource(NamedTuple):
    """A frontier that is read: its number among all, the name of its crawl, what hashes its URLs,
    and its delays."""

    source: int
    crawl: str
    hasher: IdentityHasher
    delays: DelayPolicy

    def row(self, part: str, key: bytes, value: bytes) -> tuple[Any, ...] | None:
        """Return the row of a pair; None for one that cannot be read."""
        return _READERS[part](self, key, value)


def _time(seconds: float) -> datetime | None:
    """Return a time; None for none, and for one that no calendar has."""
    return datetime.fromtimestamp(seconds, UTC) if 0 < seconds < _LAST else None


def _seed(
    frontier: FrontierSource, url: str, depth: int, key: bytes
) -> tuple[str | None, int, str]:
    """Return the seed as far as the row itself says, and what joins it with its own row."""
    is_seed = not (key or depth)
    if is_seed:
        key = frontier.hasher.key(url)[:SEED_SIZE]
    return url if is_seed else None, frontier.source, key.hex()


def _queued(frontier: FrontierSource, key: bytes, value: bytes) -> tuple[Any, ...]:
    entry, host = entry_of(key, value), host_in(key)
    seed, source, seed_key = _seed(frontier, entry.url, entry.depth, entry.seed)
    return (
        *(frontier.crawl, host, domain_of(host), entry.url, entry.file or "page"),
        *(split_queue_key(key)[0], entry.depth),
        *(entry.retries, entry.throttling, entry.strikes),
        *(key[:1] == b"p", entry.is_again, _time(entry.due)),
        *(entry.via or None, entry.hops_from_seed or None, seed, None, source, seed_key),
    )


def _page(frontier: FrontierSource, key: bytes, value: bytes) -> tuple[Any, ...] | None:
    host = host_of_page(key)
    if (row := read_row(value, host, key)) is None:
        return None
    seed, source, seed_key = _seed(frontier, row.url, row.depth, row.seed)
    digest = row.payload
    rate = row.estimate
    return (
        *(frontier.crawl, host, domain_of(host), row.url, row.status, row.depth),
        *(_time(row.first), _time(row.last), _time(row.changed), _time(row.due)),
        *(row.fetches, row.unmodified, row.changes),
        None if rate is None else rate[0] / rate[1] * _DAY,
        *(row.etag.decode("latin-1") or None, row.modified.decode("latin-1") or None),
        # As in the catalogue, and in Common Crawl's index.
        (b32encode(digest).decode() if len(digest) == 20 else digest.hex()) or None,
        *(row.text.hex() or None, _time(row.stored), row.elsewhere or None, row.price or None),
        *(bool(row.listing), seed, None, source, seed_key),
    )


def _host(frontier: FrontierSource, key: bytes, value: bytes) -> tuple[Any, ...]:
    host = decode_host(host_in(key), value)
    return (
        *(frontier.crawl, host.name, host.domain, host.health.words),
        *(host.queue.queued, host.queue.pages, host.queue.dropped),
        *(frontier.delays.of(host.name).delay(host.rate), host.rate.ema, host.rate.floor),
        *(host.rate.errors, host.rate.throttling),
        None if host.is_put_off else _time(host.due),
    )


def _words(frontier: FrontierSource, key: bytes, value: bytes) -> tuple[Any, ...]:
    return frontier.source, key[1:].hex(), words_in(value).tag or None


_READERS: dict[str, Callable[[FrontierSource, bytes, bytes], tuple[Any, ...] | None]] = {
    "hosts": _host,
    "queue": _queued,
    "poison": _queued,
    "pages": _page,
    "seeds": lambda frontier, key, value: (frontier.source, key[1:].hex(), value.decode()),
    "words": _words,
}


class FrontierFiles:
    """Writes the rows of frontiers to a Parquet file for each of WRITTEN, in a folder.

    ``left_out`` counts the rows that cannot be read.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._writers: dict[str, Any] = {}
        self.left_out = 0

    def add(
        self, frontier: FrontierSource, part: str, pairs: Iterable[tuple[bytes, bytes]]
    ) -> None:
        """Write the rows of some pairs of a part; a part without any gets its file too."""
        name = FILE_OF[part]
        rows = self._rows.setdefault(name, [])
        for key, value in pairs:
            if (row := frontier.row(part, key, value)) is None:
                self.left_out += 1
                continue
            rows.append(row)
            if len(rows) >= _ROWS:
                self._write(name)

    def close(self) -> dict[str, Path]:
        """Write what is left, and return the files."""
        for name in self._rows:
            self._write(name)
        for writer in self._writers.values():
            writer.close()
        return {name: self._path(name) for name in self._writers}

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.parquet"

    def _write(self, name: str) -> None:
        pyarrow, parquet = need("pyarrow", "sql"), need("pyarrow.parquet", "sql")
        columns, rows = WRITTEN[name], self._rows[name]
        types = {
            "text": pyarrow.string(),
            "integer": pyarrow.int32(),
            "bigint": pyarrow.int64(),
            "double": pyarrow.float64(),
            "boolean": pyarrow.bool_(),
            "timestamp": pyarrow.timestamp("us"),
        }
        schema = pyarrow.schema([(each.name, types[each.type]) for each in columns])
        if name not in self._writers:
            self._writers[name] = parquet.ParquetWriter(self._path(name), schema)
        values = zip(*rows, strict=True) if rows else ([] for _ in columns)
        arrays = [
            pyarrow.array(each, type=field.type) for each, field in zip(values, schema, strict=True)
        ]
        self._writers[name].write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
        rows.clear()
