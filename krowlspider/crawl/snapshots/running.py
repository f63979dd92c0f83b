"""The snapshot of a crawl that runs: one at a time, beside its work."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import run_in_thread

from krowlspider.archive.errors import ArchiveError
from krowlspider.errors import JobError, KrowlError, error_text
from krowlspider.frontier.store.store import STORE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from krowlspider.crawl.snapshots.copier import Made
    from krowlspider.crawl.snapshots.snapshot import Snapshot

logger = logging.getLogger(__name__)


class RunningSnapshot:
    """Takes snapshots of one crawl, one at a time. ``commit`` commits, and has the snapshot record
    what is durable at that commit."""

    def __init__(self, commit: Callable[[Snapshot], Awaitable[None]]):
        self._commit = commit
        self._snapshot: Snapshot | None = None
        self._task: asyncio.Task[None] | None = None
        self._outcome: Made | JobError | None = None
        self._has_ended = False

    def begin(self, snapshot: Snapshot) -> None:
        """Begin to take a snapshot.

        :raises JobError: another one is under way, or the crawl ends
        """
        if self._has_ended:
            raise JobError("the crawl ends: take the snapshot once it has ended")
        if self._task is not None and not self._task.done():
            assert self._snapshot is not None
            raise JobError(f"a snapshot is being taken to {self._snapshot.target}: wait for it")
        self._snapshot, self._outcome = snapshot, None
        self._task = asyncio.get_running_loop().create_task(self._take(snapshot))

    def outcome(self, target: Path) -> Made | None:
        """Return the snapshot that was begun last, None while it is under way.

        :raises JobError: it failed, or it is not to ``target``
        """
        if self._snapshot is None or self._snapshot.target != target:
            raise JobError(f"no snapshot is being taken to {target}: take it again")
        if isinstance(self._outcome, JobError):
            raise self._outcome
        return self._outcome

    async def end(self) -> None:
        """Give up a snapshot that is under way, because the crawl ends; begin no other."""
        self._has_ended = True
        if self._snapshot is not None and self._task is not None:
            self._snapshot.stop()
            await self._task

    async def _take(self, snapshot: Snapshot) -> None:
        try:
            await run_in_thread(snapshot.gather)
            await self._commit(snapshot)
            taken = await run_in_thread(snapshot.complete)
        except Exception as error:
            # Whatever it is: the command waits for an outcome.
            with suppress(OSError):
                await run_in_thread(snapshot.discard, error)
            text = f"No snapshot to {snapshot.target}: {error_text(error)}"
            expected = isinstance(error, (KrowlError, ArchiveError, OSError, *STORE_ERRORS))
            logger.warning("%s", text, exc_info=None if expected else error)
            self._outcome = JobError(text)
            return
        logger.info("Snapshot taken: %s", taken.folder)
        self._outcome = taken
