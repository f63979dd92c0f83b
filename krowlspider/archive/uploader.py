"""Uploads the finished files of a folder: two at a time, each until it is verified and noted."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from krowlspider.archive.upload import (
    FILES_AT_ONCE,
    Blame,
    LocalFile,
    Progress,
    UploadPlan,
    is_finished,
)
from krowlspider.archive.uploadnotes import UploadNotes
from krowlspider.archive.uploadstore import Bucket, BucketError, Stored, local_etag

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from krowlspider.archive.upload import Destination

logger = logging.getLogger(__name__)

# Seconds between two looks at the folder.
_LOOK = 5.0
# Seconds that the end waits for a store that takes nothing, besides those that what is under way needs.
PATIENCE = 60.0


class NotOursError(Exception):
    """Another object has the place of a WARC file, or takes it each time: nothing is written over it."""


class SpoiledError(Exception):
    """What arrived is not what was sent."""


@dataclass(slots=True)
class UploadStats:
    """Of this start: files that were verified in the bucket and noted, their bytes, tries that failed."""

    files: int = 0
    bytes: int = 0
    failed: int = 0


class Uploader:
    """Uploads what is finished in ``folder``, and again what has changed; on the event loop, from `open` to `close`.

    A file is uploaded when the object has its size and the MD5 of the bytes read from the disk as its ETag, in the
    form for parts if it has several; a store whose ETags are other (encrypted by KMS) is read back, byte for byte.
    Then it is noted, and with ``delete`` a WARC file is removed, whose index stays. A process that dies anywhere leaves
    an object that is found the next time, or nothing but parts that S3 drops by a lifecycle rule.
    """

    def __init__(
        self, folder: Path, destination: Destination, *, delete: bool, look: float = _LOOK
    ) -> None:
        self._folder = folder
        self.destination = destination
        self._delete = delete
        self._look_every = look
        self._bucket = Bucket(destination)
        self._notes = UploadNotes(folder, destination)
        self._plan = UploadPlan()
        self._tasks: set[asyncio.Task[None]] = set()
        self._looked = -inf
        self._progress = Progress()
        self.stats = UploadStats()

    @property
    def waiting(self) -> int:
        """Files that are not uploaded yet, as of the last look."""
        return self._plan.waiting

    async def open(self) -> None:
        """Lock and read the notes.

        :raises ArchiveError: another process uploads from the folder
        :raises OSError: the notes cannot be read or made
        """
        await asyncio.to_thread(self._notes.open)

    async def peek(self) -> None:
        """See what waits while the notes cannot be locked: all, when they cannot be read either."""
        with suppress(OSError):
            await asyncio.to_thread(self._notes.read)
        await self._look()

    async def check(self) -> None:
        """:raises BucketError: the bucket is not there, not to be reached, or may not be listed"""
        await self._bucket.check()

    async def finish(
        self, patience: float = PATIENCE, told: Callable[[], None] = lambda: None
    ) -> int:
        """Upload what is there, and return how many files are left: some when the store has taken nothing for
        ``patience`` seconds, and as many as what is under way needs on the slowest uplink. ``told`` is called whenever
        something has happened."""
        self._plan.forgive()
        self._move()
        await self._look()
        while self._plan.waiting:
            left = self._progress.until(patience) - time.monotonic()
            if left <= 0:
                break
            await self.step(at_most=left)
            told()
        return self._plan.waiting

    async def close(self) -> None:
        """Break off what is under way, and unlock."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # A line may still be on its way to the disk, in a thread that cannot be broken off.
        await asyncio.to_thread(self._notes.close)

    async def step(self, at_most: float = inf) -> None:
        """Begin to upload what may be, and return when something has happened or may be tried again, or
        ``at_most`` seconds have passed. What is under way goes on between two steps."""
        now = time.monotonic()
        if now - self._looked >= self._look_every:
            await self._look()
        while len(self._tasks) < FILES_AT_ONCE and (file := self._plan.take(time.monotonic())):
            self._tasks.add(asyncio.create_task(self._upload(file)))
        wait = self._wait(at_most)
        if not self._tasks:
            await asyncio.sleep(wait)
            return
        done, self._tasks = await asyncio.wait(
            self._tasks, timeout=wait, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            task.result()

    def _wait(self, at_most: float) -> float:
        """Seconds until there is something to do besides what is under way."""
        now = time.monotonic()
        times = [at_most, max(0.0, self._looked + self._look_every - now)]
        if len(self._tasks) < FILES_AT_ONCE and (due := self._plan.wait(now)) is not None:
            times.append(due)
        return min(times)

    async def _look(self) -> None:
        self._looked = time.monotonic()
        try:
            found = await asyncio.to_thread(finished_files, self._folder)
        except OSError as error:
            logger.error("%s cannot be read, so nothing is uploaded: %s", self._folder, error)
            return
        names = {file.name for file in found}
        self._plan.see(file for file in found if self._wants(file, names))

    def _wants(self, file: LocalFile, names: set[str]) -> bool:
        """Whether there is something to do for a file, ``names`` being all that are there. An index without a WARC
        file is none of ours, as one that is merged of several, or its WARC file is still written."""
        if file.warc not in names and not self._notes.knows(file.warc):
            return False
        return self._notes.of(file) is None or self._goes(file)

    def _goes(self, file: LocalFile) -> bool:
        """Whether it is removed when it is uploaded. The index stays, by which a capture is found."""
        return self._delete and file.is_warc

    async def _upload(self, file: LocalFile) -> None:
        try:
            await self._settle(file)
        except BucketError as error:
            self._failed(file, Blame.STORE, error)
        except (SpoiledError, NotOursError, OSError) as error:
            self._failed(file, Blame.FILE, error)
        else:
            if self._plan.down:
                logger.info("%s takes files again", self.destination.url())
            self._plan.done(file)
            self._move()

    def _failed(self, file: LocalFile, blame: Blame, error: Exception) -> None:
        self.stats.failed += 1
        known = self._plan.down
        wait = self._plan.failed(file, blame, time.monotonic())
        if blame is Blame.FILE:
            logger.error("%s is not uploaded, again in %.0f s: %s", file.name, wait, error)
        elif not known:
            logger.warning(
                "%s takes no files, which wait in %s and are tried again: %s",
                self.destination.url(),
                self._folder,
                error,
            )

    async def _settle(self, file: LocalFile) -> None:
        path = self._folder / file.name
        note = self._notes.of(file)
        if note is None or await self._bucket.head(file.name) != (note.size, note.etag):
            # Or what an earlier start has noted is gone since.
            stored = await self._store(file, path)
            await asyncio.to_thread(self._notes.add, file, stored.etag)
            self.stats.files += 1
            self.stats.bytes += file.size
        if self._goes(file):
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _store(self, file: LocalFile, path: Path) -> Stored:
        """Have the object in the bucket, verified."""
        stored = await self._bucket.head(file.name)
        if stored is not None:
            expected = await asyncio.to_thread(local_etag, path, file.size)
            if await self._is_same(file, path, stored, expected):
                return stored
            if file.is_warc and not self._notes.began(file):
                raise NotOursError(
                    f"{self.destination.url(file.name)} is there and differs: remove one of them"
                )
        await asyncio.to_thread(self._notes.add, file, None)
        with self._progress.of(file):
            expected = await self._bucket.put(path, file.size, self._move)
        stored = await self._bucket.head(file.name)
        if stored is None or not await self._is_same(file, path, stored, expected):
            raise SpoiledError(f"{self.destination.url(file.name)} is not what was sent")
        return stored

    async def _is_same(self, file: LocalFile, path: Path, stored: Stored, etag: str) -> bool:
        if stored.size != file.size:
            return False
        if stored.etag == etag:
            return True
        with self._progress.of(file):
            return await self._bucket.equals(path, file.size, self._move)

    def _move(self) -> None:
        self._progress.moved(time.monotonic())


def finished_files(folder: Path) -> list[LocalFile]:
    """The finished WARC files and indexes in a folder, none when it is not there. Blocks. Raises OSError."""
    try:
        with os.scandir(folder) as entries:
            names = [each for each in entries if is_finished(each.name)]
            return [_seen(each) for each in names if each.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _seen(entry: os.DirEntry[str]) -> LocalFile:
    stat = entry.stat(follow_symlinks=False)
    return LocalFile(entry.name, stat.st_size, stat.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class UploadReport:
    """What an upload by hand did: files in the bucket now, their bytes, tries that failed, files left."""

    files: int
    bytes: int
    failed: int
    left: int


def upload_folder(
    folder: Path,
    destination: Destination,
    *,
    delete: bool = False,
    patience: float = PATIENCE,
    told: Callable[[UploadStats, int], None] = lambda _stats, _left: None,
) -> UploadReport:
    """Upload what is finished in ``folder`` and not noted, until all is or the store takes nothing, as
    `Uploader.finish`. Blocks. ``told`` gets the figures and the files left whenever something has happened.

    :raises ArchiveError: another process uploads from the folder
    :raises BucketError: the bucket is not there, not to be reached, or may not be listed
    :raises OSError: the notes cannot be read or made
    """
    uploader = Uploader(folder, destination, delete=delete)
    return asyncio.run(_upload_all(uploader, patience, told))


async def _upload_all(
    uploader: Uploader, patience: float, told: Callable[[UploadStats, int], None]
) -> UploadReport:
    stats = uploader.stats
    await uploader.open()
    try:
        await uploader.check()
        left = await uploader.finish(patience, lambda: told(stats, uploader.waiting))
    finally:
        await uploader.close()
    return UploadReport(stats.files, stats.bytes, stats.failed, left)
