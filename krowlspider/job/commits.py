"""Group commits: the archive becomes durable, then the acknowledgements, with a note on the
open file.

The note on the open WARC file: how far it is synced, and the entries that it answers for. Both go
with the commit, in its batch. A start compares them with the file by `settle_open_file`: entries
whose records are lost are queued again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager, closing, suppress
from typing import TYPE_CHECKING

from msgspec import Struct, msgpack
from scrapy.utils.asyncio import run_in_thread

from krowlspider.archive.cdxj import WARC, index_path, parse
from krowlspider.archive.reading import Synced, ignore_damage, read_readable
from krowlspider.archive.tools.mend import damaged_path
from krowlspider.errors import JobError, lacks_room
from krowlspider.frontier.admin.repair import is_there
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import STORE_ERRORS, Batch, LevelStore, Store
from krowlspider.job.folder import JobFolder, JobInUseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from pathlib import Path

    from krowlspider.archive.write.writer import WarcWriter
    from krowlspider.frontier.frontier import Commit, Frontier
    from krowlspider.job.snapshots import Snapshot
    from krowlspider.job.tracing import Traces

# The entries of one commit: host, priority and encoded entry of each.
_Entries = msgpack.Decoder(list[tuple[str, int, bytes]])
_NO_ENTRIES = msgpack.encode([])


class OpenWarcNote:
    """The note in a store; ``last`` is what the last commit noted, None without an open file."""

    def __init__(self, store: Store):
        self._store = store
        saved = store.get(schema.OPEN_WARC)
        self.last = None if saved is None else Synced(*json.loads(saved))
        # The sequences of entries that belong to the file of the note: from the first to the next.
        self._first = self._next = 0

    def put(self, commit: Commit, state: Synced | None) -> None:
        """Note with a commit how far the file is synced that has its pages' records.

        Call it before the commit is written, and after `queue_again` or `clear`.
        """
        batch, last = commit.batch, self.last
        if last is not None and (state is None or state.file != last.file):
            # That file is finished.
            for sequence in range(self._first, self._next):
                batch.delete(_entries_key(sequence))
            self._first = self._next
        if state is None:
            if last is not None:
                batch.delete(schema.OPEN_WARC)
        elif state != last:
            batch.put(schema.OPEN_WARC, json.dumps(state).encode())
        self.last = state
        entries = [
            (lease.host.name, lease.priority, lease.entry.encode(lease.host.name))
            for lease, dropped in commit.acknowledged
            if dropped is None
        ]
        if state is not None and entries:
            batch.put(_entries_key(self._next), msgpack.encode(entries))
            self._next += 1

    def queue_again(self, frontier: Frontier, is_lost: Callable[[str], bool]) -> int:
        """Queue the noted entries again whose URL ``is_lost``, remove the note, and return how many
        were queued.

        After a kill it can be repeated: each entry is queued in the batch that removes it from the
        note.
        """
        count = 0
        for key in list(self._store.keys(schema.OPEN_WARC_ENTRIES)):
            lost = []
            for host, priority, saved in _Entries.decode(self._store.get(key) or _NO_ENTRIES):
                entry = Entry.decode(saved, host)
                if is_lost(entry.url):
                    entry.due, entry.retries, entry.throttling = 0.0, 0, 0
                    lost.append(Candidate(host, None, entry, priority))
            _queue_again(frontier, lost, key)
            count += len(lost)
        self.clear()
        return count

    def clear(self) -> None:
        """Remove the note: the file is finished, or nothing of it is lost."""
        if self.last is None:
            return
        batch = self._store.batch()
        for key in self._store.keys(schema.OPEN_WARC_ENTRIES):
            batch.delete(key)
        batch.delete(schema.OPEN_WARC)
        batch.write()
        self.last = None
        self._first = self._next = 0


def _queue_again(frontier: Frontier, lost: Iterable[Candidate], noted: bytes) -> None:
    """Queue entries, and remove the key that noted them, in one batch. No cap is asked: they were
    admitted before."""
    by_host: dict[str, list[Candidate]] = {}
    for candidate in lost:
        by_host.setdefault(candidate.host, []).append(candidate)
    cache = frontier.schedule.cache
    cache.evict()
    batch = frontier.store.batch()
    hosts = [cache.get(name) for name in by_host]
    for host in hosts:
        frontier.queues.append(host, by_host[host.name], batch)
    cache.record(hosts, batch)
    if frontier.pages is not None:
        # Their rows may refer to records that are lost.
        frontier.pages.forget([each.entry.url for some in by_host.values() for each in some], batch)
    batch.delete(noted)
    batch.write()


def _entries_key(sequence: int) -> bytes:
    return schema.OPEN_WARC_ENTRIES + sequence.to_bytes(8, "big")


class Loss(Struct, frozen=True):
    """Synced records of a WARC file that are lost.

    ``records`` are lost of ``synced`` records, ``urls`` of their pages are queued again.
    ``kept`` is the damaged file, None if it is gone.
    """

    file: str
    records: int
    synced: int
    urls: int
    kept: Path | None


def read_synced(folder: JobFolder) -> Synced | None:
    """Return what the last commit of a stopped crawl noted; None if its frontier cannot be read.

    :raises JobInUseError: a process uses the folder
    """
    if not is_there(folder.frontier):
        return None
    try:
        folder.take()
    except JobInUseError:
        raise
    except JobError:
        # For example of an older format: the files can be mended all the same.
        return None
    try:
        with closing(LevelStore(folder.frontier)) as store:
            return OpenWarcNote(store).last
    except STORE_ERRORS:
        return None
    finally:
        folder.leave()


def settle_open_file(note: OpenWarcNote, frontier: Frontier, directory: Path) -> Loss | None:
    """Compare the note with the file that it names, mended before, and remove the note.

    The pages whose records are lost are queued again. Return the loss, None if nothing is lost.
    Raises OSError.
    """
    synced = note.last
    if synced is None:
        return None
    warc = directory / synced.file
    damaged = damaged_path(warc)
    kept = damaged if damaged.exists() else warc if warc.exists() else None
    if kept is warc and warc.stat().st_size >= synced.size:
        note.clear()
        return None
    if kept is None and index_path(warc).exists():
        # The file was finished, and then moved or uploaded: its index stays.
        note.clear()
        return None
    records, urls = (0, set[str]()) if kept is None else _readable(kept, synced)
    before = _file_before(warc)
    if before is not None:
        # The last pages of that file were acknowledged when this one was open already.
        urls |= _indexed(before)
    queued = note.queue_again(frontier, lambda url: url not in urls)
    return Loss(synced.file, synced.records - records, synced.records, queued, kept)


def _readable(path: Path, synced: Synced) -> tuple[int, set[str]]:
    """Return the number of whole records among the synced bytes, and the URLs of all records."""
    records, urls = 0, set[str]()
    with path.open("rb") as stream:
        for member, record in read_readable(stream, ignore_damage):
            records += member.offset < synced.size
            fields = record.headers
            if fields.get("WARC-Type") in {"response", "revisit"}:
                urls.add(fields.get("WARC-Target-URI") or "")
    return records, urls


def _file_before(warc: Path) -> Path | None:
    """Return the finished file that was begun last before ``warc``; None without one."""
    names = sorted(path.name for path in warc.parent.glob(f"*{WARC}") if path.name < warc.name)
    return warc.with_name(names[-1]) if names else None


def _indexed(warc: Path) -> set[str]:
    """Return the URLs in the index of a file; none if it has no index."""
    urls = set()
    with suppress(FileNotFoundError, ValueError), index_path(warc).open("rb") as lines:
        for line in lines:
            urls.add(parse(line).url)
    return urls


logger = logging.getLogger(__name__)


class Commits:
    """Commits acknowledged pages, one commit at a time, until `ending`.

    ``note`` says which pages are in the open WARC file. ``fail`` is called with the error of a
    commit for a snapshot, ``observe`` with the seconds of each commit, by ``monotonic``.
    """

    def __init__(
        self,
        frontier: Frontier,
        archive: WarcWriter,
        note: OpenWarcNote,
        *,
        fail: Callable[[Exception], None],
        observe: Callable[[float], None],
        monotonic: Callable[[], float],
        traces: Traces | None = None,
    ):
        self._frontier = frontier
        self._archive = archive
        self._note = note
        self._fail = fail
        self._observe = observe
        self._monotonic = monotonic
        self._traces = traces
        self._lock = asyncio.Lock()
        self.is_open = True

    async def commit(self) -> None:
        """Sync the archive, then remove the entries of acknowledged pages in one synced batch.

        If the archive's disk is full, the call lasts until there is room. Once the job ends, do
        nothing.

        :raises ArchiveError: the archive cannot be written; no entry was removed
        :raises StoreError: the frontier cannot be written
        """
        async with self._lock:
            if self.is_open:
                await self.write()

    async def commit_for(self, snapshot: Snapshot) -> None:
        """Commit, and have a snapshot record what is durable then. Raises the errors of `commit`.

        :raises JobError: the job ends
        """
        async with self._lock:
            if not self.is_open:
                raise JobError("the crawl has ended")
            try:
                await self.write(snapshot.note_archive)
            except Exception as error:
                # As of any commit: nothing can be acknowledged from now on.
                self._fail(error)
                raise
            await run_in_thread(snapshot.fix)

    async def make_durable(self, batch: Batch | None = None) -> None:
        """Return when everything that was written to the frontier is synced to disk.

        ``batch``, a synced one, is written after it.

        :raises StoreError: the disk is full or failed
        """
        async with self._lock:
            await run_in_thread((batch or self._frontier.store.batch(sync=True)).write)

    @asynccontextmanager
    async def between(self) -> AsyncIterator[None]:
        """Let no commit be under way within the block."""
        async with self._lock:
            yield

    @asynccontextmanager
    async def ending(self) -> AsyncIterator[None]:
        """Let no commit begin any more, but for `write` within the block."""
        async with self._lock:
            self.is_open = False
            yield

    async def write(self, on_sync: Callable[[Synced | None], None] | None = None) -> None:
        """Commit now, while no other commit is under way. Raises the errors of `commit`."""
        # Taken before the sync: a page that is acknowledged meanwhile may have an unsynced record.
        begun = self._monotonic()
        traced = [] if self._traces is None else self._traces.take()
        commit = self._frontier.begin_commit()
        self._note.put(commit, await self._archive.sync(on_sync))
        await _write(commit.write)
        self._frontier.end_commit(commit)
        self._observe(self._monotonic() - begun)
        if self._traces is not None:
            self._traces.committed(traced)

    async def close_frontier(self, *, is_finished: bool) -> None:
        """Close the frontier. ``is_finished``: the open WARC file is whole, and may be taken away.

        :raises StoreError: the frontier cannot be written
        """
        if is_finished:
            self._note.clear()
        await _write(self._frontier.close)


async def _write(write: Callable[[], None]) -> None:
    """Write the frontier in a thread. A full disk may refuse the filter of the seen set.

    All that the filter holds is in the store too.
    """
    try:
        await run_in_thread(write)
    except OSError as error:
        if not lacks_room(error):
            raise
        logger.warning("The seen filter is not saved, so the next start takes longer: %s", error)


class Checkpoint:
    """Calls ``commit`` every ``interval`` seconds, and ``fail`` with the error of one that fails.

    It also logs when the crawl pauses because its disk is full, and when it goes on: ``full``
    returns the folder that has no room, None if there is room. ``pauses`` counts the pauses.
    ``on_room`` is called when there is room again. While ``is_ending`` returns true, nothing waits
    for a full disk: ``give_up`` ends the wait.
    """

    def __init__(
        self,
        interval: float,
        *,
        commit: Callable[[], Awaitable[None]],
        fail: Callable[[Exception], None],
        full: Callable[[], Path | None],
        give_up: Callable[[], None],
        on_room: Callable[[], None],
        is_ending: Callable[[], bool],
    ):
        self._interval = interval
        self._commit_all = commit
        self._fail = fail
        self._is_full = full
        self._give_up = give_up
        self.pauses = 0
        self.on_room = on_room
        self._is_ending = is_ending
        self._tasks: list[asyncio.Task[None]] = []
        # The folder that had no room at the last look; None if there was room.
        self._full: Path | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch()), loop.create_task(self._commit())]

    def stop(self) -> None:
        """Stop the timer. Call it while no commit is under way."""
        self._look()
        for task in self._tasks:
            task.cancel()

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self._commit_all()
            except Exception as error:  # noqa: BLE001
                # Whatever it is, nothing can be acknowledged from now on.
                self._fail(error)
                return

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            self._look()

    def _look(self) -> None:
        before, self._full = self._full, self._is_full()
        if self._full is not None and before is None:
            self.pauses += 1
            logger.warning(
                "Paused: no room in %s. Make some, and the crawl goes on by itself; nothing is"
                " lost",
                self._full,
            )
        elif self._full is None and before is not None:
            logger.info("There is room in %s again: the crawl goes on", before)
            self.on_room()
        if self._full is not None and self._is_ending():
            # The engine waits for requests that wait for room: without this it would never end.
            self._give_up()
