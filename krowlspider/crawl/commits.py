"""The commits of a job: the archive becomes durable, and then the acknowledgements do."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import run_in_thread

from krowlspider.errors import JobError, lacks_room

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from krowlspider.archive.reading import Synced
    from krowlspider.archive.write.writer import WarcWriter
    from krowlspider.crawl.archiving.open_note import OpenWarcNote
    from krowlspider.crawl.snapshots.snapshot import Snapshot
    from krowlspider.crawl.tracing import Traces
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.store.store import Batch

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
