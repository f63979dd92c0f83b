"""Snapshots of a crawl's folder as it is at one commit, also while the crawl runs.

Take a snapshot of a crawl's folder, as it is at one commit, and make a folder of one. It has what a
start needs: head, frontier, saved seen filter and archive. Whatever is derived from these, or
describes a process, is left out.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import shutil
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, BinaryIO

from scrapy.utils.asyncio import run_in_thread

from krowlspider.archive.cdxj import INDEX, WARC
from krowlspider.archive.disk import OPEN, ArchiveError, sync_directory
from krowlspider.archive.uploads import NOTES
from krowlspider.errors import JobError, KrowlError, error_text
from krowlspider.frontier.store.leveldb import LevelCopy
from krowlspider.frontier.store.store import STORE_ERRORS, LevelStore, sync
from krowlspider.job.folder import SNAPSHOT, JobFolder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from krowlspider.archive.reading import Synced

_CHUNK = 1024 * 1024
# Another file system, one without links, and a file that has too many.
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK)


@dataclass(frozen=True, slots=True)
class Made:
    """A snapshot, or a crawl's folder that was made of one: the number of its files that never
    change, by how they were made."""

    folder: str
    linked: int
    copied: int


class Copier:
    """Links and copies files. It syncs their bytes; the caller syncs the folders.

    ``linked`` and ``copied`` count the files that never change. Any thread may call `stop`: the
    next file or piece then raises JobError.
    """

    def __init__(self) -> None:
        self.linked = self.copied = 0
        self._stopped = Event()

    def stop(self) -> None:
        self._stopped.set()

    def take(self, source: Path, target: Path) -> None:
        """Link a file that never changes; copy it where that cannot be.

        :raises OSError: there is no such file, or no room
        """
        self._check()
        if not self.link(source, target):
            self.copy_file(source, target)
            self.copied += 1

    def link(self, source: Path, target: Path) -> bool:
        """Link a file; return False where that cannot be.

        :raises OSError: there is no such file, or no room
        """
        try:
            target.hardlink_to(source)
        except OSError as error:
            if error.errno in _NO_LINK:
                return False
            raise
        self.linked += 1
        return True

    def copy(self, file: BinaryIO, target: Path, size: int | None = None) -> None:
        """Copy the first ``size`` bytes of a file, None for all, with its times.

        :raises OSError: it is shorter, or there is no room
        """
        left = os.fstat(file.fileno()).st_size if size is None else size
        file.seek(0)
        with target.open("xb") as out:
            while left:
                self._check()
                if not (data := file.read(min(left, _CHUNK))):
                    raise OSError(errno.EIO, f"{file.name} has become shorter")
                out.write(data)
                left -= len(data)
            out.flush()
            os.fsync(out.fileno())
        times = os.fstat(file.fileno())
        os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))

    def copy_file(self, source: Path, target: Path) -> None:
        """Copy a whole file by name, as in `copy`."""
        with source.open("rb") as file:
            self.copy(file, target)

    def made(self, folder: Path) -> Made:
        """Return what was made of a folder until now."""
        return Made(str(folder), self.linked, self.copied)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise JobError("the crawl has ended before the snapshot was whole: take it again")


def draft_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.tmp")


def check_new(target: Path) -> None:
    """Check that a folder can be made.

    :raises JobError: it exists, or its draft does, or the folder that it is to be in does not
    """
    if not target.name or "\0" in str(target):
        raise JobError(f"{str(target)!r} is not the name of a new folder")
    draft = draft_of(target)
    if os.path.lexists(target):
        raise JobError(f"{target} exists: give the name of a new folder")
    if os.path.lexists(draft):
        raise JobError(
            f"{draft} exists: a snapshot or restore is under way or was cut short; if none is"
            " under way, remove it"
        )
    if not target.parent.is_dir():
        raise JobError(f"{target.parent} is not a folder: make it first")


@contextmanager
def kept_if_whole(target: Path) -> Iterator[Path]:
    """Yield a draft of a folder, private to its owner. On exit give it its name; after an error
    remove it.

    :raises JobError: as of `check_new`
    :raises OSError: the draft cannot be made, or not be renamed
    """
    check_new(target)
    draft = draft_of(target)
    draft.mkdir(mode=0o700)
    try:
        yield draft
        for folder, *_ in os.walk(draft):
            sync_directory(Path(folder))
        if os.path.lexists(target):
            raise JobError(f"{target} has appeared meanwhile: give the name of a new folder")
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    sync_directory(target.parent)


HEAD = "job.json"
ARCHIVE = "warc"
_DRAFT = ".new"
# Files that no crawl changes: it replaces or removes them.
_LINKED = (".ldb", ".sst", WARC, INDEX, f"{WARC}{OPEN}.damaged")


def take_stopped(folder: JobFolder, store: LevelStore, archive: Path, target: Path) -> Made:
    """Take a snapshot of a crawl that does not run, whose folder is locked and whose store is open.
    Raises the errors of `Snapshot`."""
    snapshot = Snapshot(folder, store, archive, target)
    try:
        snapshot.gather()
        snapshot.note_stopped_archive()
        snapshot.fix()
        return snapshot.complete()
    except BaseException as error:
        snapshot.discard(error)
        raise


# How the name of a copy of a frontier begins, in the JOBDIR.
COPY = "sql-"


def copy_frontier(store: LevelStore, target: Path) -> None:
    """Copy the frontier of a crawl that runs, as it is at one moment, to a new folder. This blocks.

    :raises StoreError: the frontier has failed
    :raises OSError: the disk failed or has no room
    """
    copier = Copier()
    copy = LevelCopy(store, target, copier.take, copier.link, copier.copy)
    try:
        copy.gather()
        copy.fix()
        copy.complete()
    finally:
        copy.close()


class Snapshot:
    """A snapshot of ``folder`` on its way to ``target``.

    Call `gather`, `note_archive`, `fix` and `complete` in this order; all block. From
    `note_archive` to `fix` there is one commit and no more. After an error call `discard`, and
    nothing is left of it.

    :raises JobError: ``target`` cannot be made, the archive is not there, or `stop` was called
    :raises StoreError: the frontier has failed
    :raises OSError: the disk failed or has no room
    """

    def __init__(self, folder: JobFolder, store: LevelStore, archive: Path, target: Path):
        check_new(target)
        if not archive.is_dir():
            raise JobError(
                f"there is no archive in {archive}: give the KROWL_WARC_DIR of the crawl"
            )
        self.target = target
        self._folder = folder
        self._store = store
        self._archive = archive
        self._copier = Copier()
        self._exits = ExitStack()
        self._finished: list[str] = []
        # WARC files that are open now, with the bytes that belong to the commit; None for all.
        self._unfinished: list[tuple[BinaryIO, str, int | None]] = []
        self._archive_failure: OSError | None = None
        # The seen filter, if it cannot be linked.
        self._seen: BinaryIO | None = None

    def stop(self) -> None:
        """Have the step that runs in another thread fail."""
        self._copier.stop()

    def gather(self) -> None:
        """Take most of the frontier, while the crawl goes on."""
        self._draft = self._exits.enter_context(kept_if_whole(self.target))
        copier = self._copier
        self._frontier = LevelCopy(
            self._store, self._draft / "frontier", copier.take, copier.link, copier.copy
        )
        self._exits.callback(self._frontier.close)
        self._frontier.gather()

    def note_archive(self, synced: Synced | None) -> None:
        """Note the WARC files of a commit, right after its sync, which returned ``synced``. An
        error is raised by `fix`."""
        try:
            self._finished = self._names()
            if synced is not None:
                self._note_open(f"{synced.file}{OPEN}", synced.size)
        except OSError as error:
            # Here it would stop the archive.
            self._archive_failure = error

    def note_stopped_archive(self) -> None:
        """Note the WARC files of a crawl that does not run. A start mends those that are open."""
        self._finished = self._names()
        for path in self._archive.glob(f"*{OPEN}"):
            self._note_open(path.name, None)

    def _note_open(self, name: str, size: int | None) -> None:
        # It may be finished, uploaded and removed before it is copied.
        file = self._exits.enter_context((self._archive / name).open("rb"))
        self._unfinished.append((file, name, size))

    def fix(self) -> None:
        """Note what the frontier is now, and the seen filter."""
        if self._archive_failure is not None:
            raise self._archive_failure
        self._frontier.fix()
        seen = self._folder.seen
        if seen.exists() and not self._copier.link(seen, self._draft / seen.name):
            self._seen = self._exits.enter_context(seen.open("rb"))

    def complete(self) -> Made:
        """Take everything else, while the crawl goes on."""
        self._copier.copied += self._frontier.complete()
        self._copier.copy_file(self._folder.path / HEAD, self._draft / HEAD)
        if self._seen is not None:
            self._copier.copy(self._seen, self._draft / self._folder.seen.name)
            self._copier.copied += 1
        self._take_archive()
        about = self._draft / SNAPSHOT
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        about.write_text(json.dumps({"of": str(self._folder.path.resolve()), "taken": moment}))
        sync(about)
        self._exits.close()
        return self._copier.made(self.target)

    def discard(self, error: BaseException) -> None:
        """Remove what there is of it, because of an error."""
        self._exits.__exit__(type(error), error, error.__traceback__)

    def _names(self) -> list[str]:
        """Return the names of the finished WARC files, and what goes with them."""
        return [
            path.name
            for path in self._archive.iterdir()
            if path.is_file()
            and not path.name.startswith(".")
            and not path.name.endswith((OPEN, _DRAFT))
            and path.name != NOTES
        ]

    def _take_archive(self) -> None:
        target = self._draft / ARCHIVE
        target.mkdir()
        for name in self._finished:
            try:
                self._copier.take(self._archive / name, target / name)
            except FileNotFoundError as error:
                # It may have been uploaded and removed meanwhile.
                if not (self._archive / NOTES).exists():
                    raise JobError(
                        f"{self._archive / name} was moved or removed meanwhile: take the snapshot"
                        " again"
                    ) from error
        for file, name, size in self._unfinished:
            self._copier.copy(file, target / name, size)
        if (notes := self._archive / NOTES).exists():
            self._copier.copy_file(notes, target / NOTES)


def restore(snapshot: Path, jobdir: Path) -> Made:
    """Make ``jobdir`` of a snapshot, which stays as it is.

    :raises JobError: it is no snapshot, or ``jobdir`` cannot be made
    :raises OSError: the disk failed or has no room
    """
    if not (snapshot / SNAPSHOT).is_file() or not (snapshot / HEAD).is_file():
        raise JobError(f"{snapshot} is not a snapshot: give a folder that --snapshot has made")
    copier = Copier()
    with kept_if_whole(jobdir) as draft:
        for source in sorted(snapshot.rglob("*")):
            target = draft / source.relative_to(snapshot)
            if source.is_dir():
                target.mkdir()
            elif source.name.endswith(_LINKED):
                copier.take(source, target)
            elif source != snapshot / SNAPSHOT:
                copier.copy_file(source, target)
    return copier.made(jobdir)


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
