"""A commit makes the archive durable before the frontier, and off the event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.archive.disk import ArchiveError
from krowlspider.errors import JobError
from krowlspider.job.commits import Commits, OpenWarcNote
from krowlspider.job.snapshots import Snapshot
from tests.frontier.memory import MemoryStore
from tests.job.test_job_life import job_in

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


def commits_of(parts: Parts, failures: list[Exception]) -> Commits:
    archive: Any = parts
    return Commits(
        archive,
        archive,
        OpenWarcNote(MemoryStore()),
        fail=failures.append,
        observe=lambda _: None,
        monotonic=lambda: 0.0,
    )


def test_invariant_5_archive_is_synced_before_the_frontier() -> None:
    """The frontier's write blocks for an fsync, so it is done in a thread."""
    parts = Parts(failed=False)
    asyncio.run(commits_of(parts, []).commit())
    assert parts.done == ["sync the archive", "write in a thread", "end the leases"]


def test_invariant_5_failed_archive_acknowledges_nothing() -> None:
    parts = Parts(failed=True)
    with pytest.raises(ArchiveError, match="the disk failed"):
        asyncio.run(commits_of(parts, []).commit())
    assert parts.done == ["sync the archive"]


def test_no_commit_begins_once_the_job_ends() -> None:
    """The one at the end is the last; a snapshot is refused."""
    parts = Parts(failed=False)

    async def main() -> None:
        commits = commits_of(parts, [])
        async with commits.ending():
            waiting = asyncio.ensure_future(commits.commit())
            await asyncio.sleep(0)
            await commits.write()
        await waiting
        with pytest.raises(JobError, match="the crawl has ended"):
            await commits.commit_for(object())  # type: ignore[arg-type]

    asyncio.run(main())
    assert parts.done == ["sync the archive", "write in a thread", "end the leases"]


def test_no_commit_is_under_way_in_between() -> None:
    """Due pages are queued there: both write rows of pages."""
    parts = Parts(failed=False)

    async def main() -> None:
        commits = commits_of(parts, [])
        async with commits.between():
            waiting = asyncio.ensure_future(commits.commit())
            await asyncio.sleep(0)
            parts.done.append("queue due pages")
        await waiting

    asyncio.run(main())
    assert parts.done[:2] == ["queue due pages", "sync the archive"]


def test_a_commit_that_fails_for_a_snapshot_stops_the_crawl(tmp_path: Path) -> None:
    """The acknowledgements in it are lost."""
    failures: list[Exception] = []

    async def main() -> None:
        job = job_in(tmp_path / "job")
        snapshot = Snapshot(job.folder, job.store, job.archive.directory, tmp_path / "taken")
        with pytest.raises(ArchiveError):
            await commits_of(Parts(failed=True), failures).commit_for(snapshot)
        await job.close()

    asyncio.run(main())
    assert [type(error) for error in failures] == [ArchiveError]
