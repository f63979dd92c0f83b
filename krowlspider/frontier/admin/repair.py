"""Repair a damaged frontier, and rebuild what it derives from its queue entries.

Host records, heap and seen marks are rebuilt from the queue entries: a damaged store may have lost
one without the other.

A frontier is repaired as far as LevelDB can read it. Meanwhile it is moved aside, so that no crawl
opens it; the next repair completes one that was killed. The files as they were found stay in a
folder of hard links.
"""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from itertools import chain, groupby
from typing import TYPE_CHECKING

import plyvel

from krowlspider.errors import error_text, scrapy_with
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.hosts.host import DEFERRED, Host, Level, level_of
from krowlspider.frontier.hosts.host_record import decode_host, encode_host
from krowlspider.frontier.outbox import FOREIGN
from krowlspider.frontier.pages.row import DamagedRow, LaterRow, decode_row
from krowlspider.frontier.stopped import read_counters
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.leveldb import without_damage
from krowlspider.frontier.store.schema import host_in, split_queue_key
from krowlspider.frontier.store.store import (
    TABLE_OPTIONS,
    LevelStore,
    Store,
    StoreError,
    check_room,
    cut_logs,
    forget_sizes,
    records,
    sync,
)
from krowlspider.urls.canonical import IdentityHasher, requisite_identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from krowlspider.frontier.seen import FilterFile

# Changes in one batch: about 1 MB.
_BATCH = 10_000
# What follows the host in a seen mark's key: a zero byte and an identity.
_SEEN_TAIL = 1 + schema.KEY_SIZE
_KINDS = {
    "poison": (schema.POISON,),
    "robots": (schema.ROBOTS + b"http", schema.ROBOTS + b"gemini:"),
    "outbox": (schema.OUTBOX,),
    "budgets": (schema.BUDGET,),
    "pages": (schema.PAGES,),
}


@dataclass(slots=True)
class FrontierRemains:
    """What is left of a frontier.

    - ``kept``: keys by kind. ``marked``: seen marks that were made anew.
    - ``short``: the hosts that lack most of the entries that their records count, and how many.
      ``short_hosts``, ``short_urls``: totals, with what was done in the last second before a kill.
    - ``unrecorded``: the first of the hosts with entries or seen marks and no record.
    - ``counters_lost``: the counters are missing, or older than the host records.
    - ``bad_rows``: the first of the rows of pages that were damaged and are removed, each as host,
      identity and reason.
    """

    kept: dict[str, int] = field(default_factory=dict)
    marked: int = 0
    short: list[tuple[int, str]] = field(default_factory=list)
    short_hosts: int = 0
    short_urls: int = 0
    unrecorded: list[str] = field(default_factory=list)
    unrecorded_hosts: int = 0
    counters_lost: bool = False
    bad_rows: list[tuple[str, str, str]] = field(default_factory=list)
    bad_row_count: int = 0

    @property
    def whole(self) -> bool:
        """Return whether nothing was missing."""
        return not (self.marked or self.short_hosts or self.unrecorded_hosts or self.bad_row_count)


def rebuild_indexes(store: Store, hasher: IdentityHasher, now: float, most: int) -> FrontierRemains:
    """Make everything agree with the queue entries; the saved seen filter must be removed before.

    A host without a record becomes due ``now``, in seconds of the job clock. ``most`` is the length
    of the lists in `FrontierRemains`.
    """
    rebuild = _Rebuild(store, hasher, now, most)
    rebuild.clear()
    for name, record, entries in _hosts(store):
        rebuild.put_host(name, record, entries)
    rebuild.mark_pages()
    rebuild.end()
    rebuild.count()
    return rebuild.found


def _hosts(store: Store) -> Iterator[tuple[str, bytes | None, Iterable[tuple[bytes, bytes]]]]:
    """Yield name, record and entries of each host that has a record or entries."""
    for name, found in groupby(store.items(schema.QUEUE), key=lambda item: host_in(item[0])):
        items = iter(found)
        first = next(items)
        if schema.is_record(first[0]):
            yield name, first[1], items
        else:
            yield name, None, chain([first], items)


class _Rebuild:
    """One pass over a store, in batches of a bounded size."""

    def __init__(self, store: Store, hasher: IdentityHasher, now: float, most: int):
        self._store = store
        self._hasher = hasher
        self._now = schema.whole_microseconds(now)
        self._most = most
        self._batch = store.batch()
        self._changes = 0
        self._pages = 0
        self.found = FrontierRemains()

    def _change(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._batch.delete(key)
        else:
            self._batch.put(key, value)
        self._changes += 1
        if self._changes % _BATCH == 0:
            self._batch.write()
            self._batch = self._store.batch()

    def clear(self) -> None:
        """Remove what is made anew here or by the next start."""
        # Sequences go on from here: a saved filter is known by that of its last batch.
        sequences = map(schema.split_new_keys_key, self._store.keys(schema.NEW_KEYS))
        saved = int.from_bytes(self._store.get(schema.SAVED) or b"", "big")
        self._change(schema.SAVED, max([saved, *sequences]).to_bytes(8, "big"))
        for kind in (schema.CLEAN, schema.TALLY, schema.DUE, schema.NEW_KEYS):
            for key in self._store.keys(kind):
                self._change(key, None)

    def put_host(
        self, name: str, record: bytes | None, entries: Iterable[tuple[bytes, bytes]]
    ) -> None:
        """Write a host's record, its place in the heap, and the missing marks of its entries."""
        if record is None:
            self._miss_record(name)
            host = Host(name, due=self._now)
        else:
            host = decode_host(name, record)
        queue = host.queue
        self._pages += queue.pages
        counted, queue.queued, queue.levels = queue.queued, 0, {}
        marked: set[bytes] | None = None
        for key, value in entries:
            if marked is None:
                marked = set(schema.marked_by(self._store.items(schema.seen_prefix(name))))
            priority, sequence = split_queue_key(key)
            number = level_of(priority, sequence)
            queue.levels.setdefault(number, Level(sequence, sequence)).tail = sequence + 1
            queue.queued += 1
            self._mark(name, entry_of(key, value), marked)
        if queue.queued < counted:
            self._miss_entries(name, counted - queue.queued)
        if host.state is DEFERRED:
            self._change(schema.deferred_key(name), b"")
        elif queue.queued:
            self._change(schema.due_key(host.due, name), b"")
        if queue.queued or counted:
            self._change(schema.host_key(name), encode_host(host))

    def _mark(self, name: str, entry: Entry, marked: set[bytes]) -> None:
        # A whole request may have no identity, or one with its body: it may be queued once more.
        if not (entry.is_plain or entry.is_requisite):
            return
        url = requisite_identity(entry.url) if entry.is_requisite else entry.url
        identity = self._hasher.key(url)
        if identity not in marked:
            marked.add(identity)
            self._change(schema.seen_prefix(name) + identity, b"")
            self.found.marked += 1

    def mark_pages(self) -> None:
        """Write the missing marks of pages that have a row, and remove the rows that are damaged:
        their pages stay known."""
        rows = self._store.items(schema.PAGES)
        for name, some in groupby(rows, key=lambda row: schema.host_of_page(row[0])):
            prefix = schema.seen_prefix(name)
            marked = set(schema.marked_by(self._store.items(prefix)))
            for key, row in some:
                identity = key[-schema.KEY_SIZE :]
                if identity not in marked:
                    self._change(prefix + identity, b"")
                    self.found.marked += 1
                try:
                    decode_row(row, name)
                except LaterRow:
                    continue
                except DamagedRow as error:
                    self._change(key, None)
                    self._find_damage(name, identity, str(error))

    def end(self) -> None:
        # If this were lost, joined marks would never be split.
        self._batch.put(schema.JOINED, b"")
        # Buckets may be lost: the next start with a schedule makes them anew from the rows.
        self._batch.delete(schema.DUE_PLACE)
        self._batch.write()
        self._store.batch(sync=True).write()

    def count(self) -> None:
        """Count what is left, now that hosts with entries have their records again."""
        found, store = self.found, self._store
        hosts = sum(1 for _ in records(store))
        queued = sum(1 for _ in store.keys(schema.QUEUE)) - hosts
        found.kept = {"hosts": hosts, "queued": queued}
        found.kept |= {
            kind: sum(1 for prefix in prefixes for _ in store.keys(prefix))
            for kind, prefixes in _KINDS.items()
        }
        found.kept["seen"] = self._count_seen()
        found.short.sort(reverse=True)
        is_missing = store.get(schema.COUNTERS) is None
        found.counters_lost = is_missing or read_counters(store)["done"] < self._pages

    def _count_seen(self) -> int:
        count = 0
        marks = groupby(self._store.items(schema.SEEN), key=lambda mark: mark[0][1:-_SEEN_TAIL])
        for host, some in marks:
            name = host.decode()
            is_ours = not name.startswith(FOREIGN)
            if is_ours and self._store.get(schema.host_key(name)) is None:
                self._miss_record(name)
            count += sum(1 for _ in schema.marked_by(some))
        return count

    def _find_damage(self, name: str, identity: bytes, why: str) -> None:
        self.found.bad_row_count += 1
        if len(self.found.bad_rows) < self._most:
            self.found.bad_rows.append((name, identity.hex(), why))

    def _miss_record(self, name: str) -> None:
        self.found.unrecorded_hosts += 1
        if len(self.found.unrecorded) < self._most:
            self.found.unrecorded.append(name)

    def _miss_entries(self, name: str, count: int) -> None:
        found = self.found
        found.short_hosts += 1
        found.short_urls += count
        if len(found.short) < self._most:
            heappush(found.short, (count, name))
        else:
            heappushpop(found.short, (count, name))


# Where LevelDB's repair puts files that it has read, whole or not.
_LOST = "lost"
# Hosts in the lists of `FrontierRemains`.
MOST = 10
_TABLES = (".ldb", ".sst")
# LevelDB's words for tables that its manifest names and that are missing: db/db_impl.cc.
_MISSING_TABLES = re.compile(r"(\d+) missing files")
# LevelDB's words for files that are missing or too short; it has no code of its own for it.
_MISSING = ("No such file or directory", "Invalid argument")


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair found.

    - ``copy``: the folder of the files as they were; None when nothing was wrong with them.
    - ``tables``: those that could not be read whole. ``table_bytes``: their size.
    - ``log_bytes``: what was unreadable in logs. ``cut_bytes``: what was missing at their ends.
    - ``missing``: how many tables were missing.
    """

    copy: str | None
    tables: list[str]
    table_bytes: int
    log_bytes: int
    found: FrontierRemains
    missing: int = 0
    cut_bytes: int = 0

    @property
    def lossy(self) -> bool:
        """Return whether URLs may be lost that no record counts."""
        damaged = self.tables or self.log_bytes or self.missing or self.cut_bytes
        return bool(damaged or self.found.unrecorded_hosts)

    @property
    def empty(self) -> bool:
        """Return whether no host is left of a damaged frontier."""
        return self.copy is not None and not self.found.kept["hosts"]


def _is_damage(error: BaseException | None) -> bool:
    """Return whether an error of a store, or a cause in its chain, is damage to its files."""
    if error is None:
        return False
    is_missing = isinstance(error, plyvel.Error) and any(
        words in error_text(error) for words in _MISSING
    )
    return isinstance(error, plyvel.CorruptionError) or is_missing or _is_damage(error.__cause__)


def way_out(error: BaseException, jobdir: Path) -> str:
    """Return what to add to an error's message: the way to mend damage, empty for other errors."""
    if not _is_damage(error):
        return ""
    if not is_there(jobdir / "frontier"):
        return f"; {gone(jobdir)}"
    return f"; mend it with: {scrapy_with('frontier', jobdir, '--repair')}"


def is_there(frontier: Path) -> bool:
    """Return whether a folder has any file in which LevelDB keeps keys."""
    return any(
        path.suffix in (*_TABLES, ".log") or path.name.startswith("MANIFEST")
        for path in (frontier.iterdir() if frontier.is_dir() else ())
    )


def gone(jobdir: Path) -> str:
    """Return the message for a crawl's folder without a frontier."""
    way = "put it back from a copy, or give another JOBDIR"
    return f"JOBDIR {jobdir} has no frontier/ any more: {way}"


def repair(frontier: Path, filter_file: FilterFile, hasher: IdentityHasher, now: float) -> Repaired:
    """Repair a LevelDB folder and rebuild what is derived in it; ``now`` is in epoch seconds.

    :raises StoreError: there is nothing to read, no room, or it still cannot be opened
    """
    try:
        return _repair(frontier, filter_file, hasher, now)
    except (plyvel.Error, OSError) as error:
        raise StoreError(f"{frontier} cannot be repaired: {error_text(error)}") from error


def _repair(
    frontier: Path, filter_file: FilterFile, hasher: IdentityHasher, now: float
) -> Repaired:
    working = frontier.with_name(frontier.name + ".repairing")
    source = working if working.exists() else frontier
    if not is_there(source):
        raise StoreError(f"there is nothing to repair: {gone(frontier.parent)}")
    check_room(source)
    refusal = _refusal(frontier) if source is frontier else "it was being repaired"
    copy = _set_aside(frontier, working)
    # From the copy, which stays as it was found however often the repair begins.
    cut_bytes = sum(cut_logs(copy).values())
    forget_sizes(working)
    log_bytes = sum(_clean_log(log) for log in sorted(working.glob("*.log")))
    plyvel.repair_db(str(working), **TABLE_OPTIONS)
    broken = sorted(
        path
        for path in copy.iterdir()
        if path.suffix in _TABLES and (working / _LOST / path.name).exists()
    )
    filter_file.remove()
    with closing(LevelStore(working)) as store:
        # LevelDB's repair leaves all tables in one level, where each read looks into every table.
        store.compact(b"\0", b"\xff")
        found = rebuild_indexes(store, hasher, now, MOST)
    shutil.rmtree(working / _LOST, ignore_errors=True)
    working.rename(frontier)
    sync(frontier.parent)
    healthy = refusal is None and found.whole and not (broken or log_bytes)
    if healthy:
        shutil.rmtree(copy)
    missing = _MISSING_TABLES.search(refusal or "")
    return Repaired(
        copy=None if healthy else str(copy),
        tables=[path.name for path in broken],
        table_bytes=sum(path.stat().st_size for path in broken),
        log_bytes=log_bytes,
        found=found,
        missing=int(missing[1]) if missing else 0,
        cut_bytes=cut_bytes,
    )


def _refusal(frontier: Path) -> str | None:
    """Return why LevelDB does not open a frontier; None if it does."""
    # Opening deletes the files that the manifest does not name, so it opens links to them.
    draft = _links(frontier, frontier)
    try:
        LevelStore(draft).close()
    except StoreError as error:
        return error_text(error)
    finally:
        shutil.rmtree(draft)
    return None


def _set_aside(frontier: Path, working: Path) -> Path:
    """Move a frontier to where it is repaired, and return a folder of links to its files."""
    copies = sorted(frontier.parent.glob(f"{frontier.name}.before-repair-*"), key=_number)
    if working.exists():
        if (frontier / "CURRENT").exists():
            raise StoreError(f"both {frontier} and {working} hold a frontier: move one away")
        # LevelDB has left files there if somebody tried to open it.
        shutil.rmtree(frontier, ignore_errors=True)
        if copies:
            return copies[-1]
    draft = _links(working if working.exists() else frontier, frontier)
    sync(draft)
    number = _number(copies[-1]) + 1 if copies else 1
    copy = frontier.with_name(f"{frontier.name}.before-repair-{number}")
    draft.rename(copy)
    sync(frontier.parent)
    if not working.exists():
        frontier.rename(working)
        sync(frontier.parent)
    return copy


def _number(copy: Path) -> int:
    return int(copy.name.rpartition("-")[2])


def _links(source: Path, frontier: Path) -> Path:
    """Make a folder of links to the files in another."""
    draft = frontier.with_name(frontier.name + ".before-repair.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    for path in source.iterdir():
        if path.is_file():
            try:
                (draft / path.name).hardlink_to(path)
            except OSError:
                # A file system without hard links.
                shutil.copy2(path, draft / path.name)
    return draft


def _clean_log(log: Path) -> int:
    """Replace a log by one without damaged records, and return the bytes of those."""
    data, damaged = without_damage(log.read_bytes())
    if damaged:
        draft = log.with_name(log.name + ".clean")
        draft.write_bytes(data)
        sync(draft)
        draft.replace(log)
    return damaged
