"""A job commits its archive before its frontier, and off the event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import Settings

from krowlspider import settings as defaults
from krowlspider.archive.errors import ArchiveError
from krowlspider.crawl.job import Job
from krowlspider.crawl.snapshots.snapshot import Snapshot
from tests.support.crawling import CONTACT

if TYPE_CHECKING:
    from pathlib import Path


class Parts:
    """The archive and the frontier of a job; ``done`` has what a commit had them do. The archive
    has ``failed`` for good, or not."""

    def __init__(self, *, failed: bool):
        self.done: list[str] = []
        self.batch, self.acknowledged = None, ()
        self._failed = failed

    async def sync(self, _: object) -> None:
        self.done.append("sync the archive")
        if self._failed:
            raise ArchiveError("the disk failed")

    def begin_commit(self) -> Parts:
        return self

    def write(self) -> None:
        on_loop = threading.current_thread() is threading.main_thread()
        self.done.append("write on the event loop" if on_loop else "write in a thread")

    def end_commit(self, _: Any) -> None:
        self.done.append("end the leases")


def opened(folder: Path) -> Job:
    ours = {name: value for name, value in vars(defaults).items() if name.startswith("KROWL_")}
    return Job(Settings({**ours, "KROWL_CONTACT": CONTACT, "JOBDIR": str(folder / "job")}))


def commit(folder: Path, parts: Parts, *, for_snapshot: bool = False) -> Exception | None:
    """Commit a job that has these parts, and return the failure for which it stops."""

    async def main() -> Exception | None:
        job = opened(folder)
        archive, frontier = job.archive, job.frontier
        job.archive = job.frontier = parts
        try:
            if for_snapshot:
                snapshot = Snapshot(job.folder, job.store, archive.directory, folder / "taken")
                with pytest.raises(ArchiveError):
                    await job._commit_for(snapshot)
            else:
                await job.commit()
        finally:
            failure = job.failure
            job.archive, job.frontier = archive, frontier
            await job.close()
        return failure

    return asyncio.run(main())


def test_invariant_5_archive_is_synced_before_the_frontier(tmp_path: Path) -> None:
    """The frontier's write blocks for an fsync, so it is done in a thread."""
    parts = Parts(failed=False)
    commit(tmp_path, parts)
    assert parts.done == ["sync the archive", "write in a thread", "end the leases"]


def test_invariant_5_failed_archive_acknowledges_nothing(tmp_path: Path) -> None:
    parts = Parts(failed=True)
    with pytest.raises(ArchiveError, match="the disk failed"):
        commit(tmp_path, parts)
    assert parts.done == ["sync the archive"]


def test_a_commit_that_fails_for_a_snapshot_stops_the_crawl(tmp_path: Path) -> None:
    """The acknowledgements in it are lost."""
    parts = Parts(failed=True)
    assert isinstance(commit(tmp_path, parts, for_snapshot=True), ArchiveError)
