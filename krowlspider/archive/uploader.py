"""Upload the finished files of a folder into a bucket, verify and note each.

Put an object into the bucket, read its metadata, compare it with its file. The client is obstore;
it works outside the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from math import inf
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from krowlspider.archive.uploads import (
    FILES_AT_ONCE,
    PARTS_AT_ONCE,
    REQUEST,
    STALLED_AFTER,
    Destination,
    LocalFile,
    UploadLog,
    UploadNote,
    UploadPlan,
    etag_of,
    is_finished,
    md5,
    part_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from obstore.store import S3Config

_CONNECT = timedelta(seconds=10)
# The client retries a short failure itself; the caller waits through an outage.
_TRIES = 2
_TRY_TIME = timedelta(seconds=10)
# S3's name of the error, in the XML of its answer.
_CODE = re.compile(r"<Code>(\w+)</Code>")
# Characters of the client's message that are kept.
_MESSAGE_MAX = 300


class BucketError(Exception):
    """A request to the store failed; a later one may succeed. The message is one line."""


class StoredObject(NamedTuple):
    """An object in the bucket: its size in bytes, and its ETag without the quotes."""

    size: int
    etag: str


class Bucket:
    """The objects under a destination, by the names of their files.

    The client takes credentials and region from the environment (AWS_ACCESS_KEY_ID ...) or from the
    machine's role. It signs the SHA-256 of every body, so a store can refuse a changed one.
    """

    def __init__(self, destination: Destination) -> None:
        config: S3Config = {}
        if destination.endpoint is not None:
            config["endpoint"] = destination.endpoint
        self._store = S3Store(
            destination.bucket,
            prefix=destination.prefix or None,
            config=config,
            client_options={
                "allow_http": (destination.endpoint or "").startswith("http://"),
                "connect_timeout": _CONNECT,
                "timeout": timedelta(seconds=REQUEST),
            },
            retry_config={"max_retries": _TRIES, "retry_timeout": _TRY_TIME},
        )

    async def check(self) -> None:
        """List the bucket once.

        :raises BucketError: it does not exist, cannot be reached, or may not be listed
        """
        with _bucket_errors():
            async for _ in obstore.list(self._store, chunk_size=1):
                break

    async def head(self, name: str) -> StoredObject | None:
        """Return size and ETag of a file's object, None if there is none. Raises BucketError."""
        try:
            with _bucket_errors():
                meta = await obstore.head_async(self._store, name)
        except FileNotFoundError:
            return None
        return StoredObject(meta["size"], (meta["e_tag"] or "").strip('"'))

    async def put(self, path: Path, size: int, on_part: Callable[[], None]) -> str:
        """Upload a file and return the ETag computed from the bytes read from the disk.

        A large file is sent in parts, of which at most four are in memory. ``on_part`` is called,
        in any thread, when the store has taken a part, for the last two parts once. Raises
        BucketError and OSError.
        """
        part = part_size(size)
        digests: list[bytes] = []
        with path.open("rb") as stream:
            data: bytes | Iterator[bytes]
            if size > part:
                data = _parts(stream, part, digests, on_part)
            else:
                data = whole = await asyncio.to_thread(stream.read)
                digests.append(md5(whole))
            try:
                with _bucket_errors():
                    await obstore.put_async(
                        self._store,
                        path.name,
                        data,
                        use_multipart=size > part,
                        chunk_size=part,
                        max_concurrency=PARTS_AT_ONCE,
                    )
            except FileNotFoundError as error:
                # While an object is written, only the bucket can be missing.
                raise BucketError(_message(error)) from error
        on_part()
        return etag_of(digests, whole=size <= part)

    async def equals(self, path: Path, size: int, on_part: Callable[[], None]) -> bool:
        """Read the object back; return whether it equals the file, which has as many bytes.

        ``on_part`` is called after each equal part. Raises BucketError and OSError.
        """
        part = part_size(size)
        with path.open("rb") as stream:
            for start in range(0, size, part):
                here = await asyncio.to_thread(stream.read, part)
                with _bucket_errors():
                    there = await obstore.get_range_async(
                        self._store, path.name, start=start, length=len(here)
                    )
                if memoryview(there) != memoryview(here):
                    return False
                on_part()
        return True


def local_etag(path: Path, size: int) -> str:
    """Return the ETag that a file's object should have. Blocks. Raises OSError."""
    part = part_size(size)
    with path.open("rb") as stream:
        digests = [md5(piece) for piece in _pieces(stream, part)]
    return etag_of(digests or [md5(b"")], whole=size <= part)


def _parts(
    stream: BinaryIO, size: int, digests: list[bytes], on_part: Callable[[], None]
) -> Iterator[bytes]:
    """Yield the parts of a file to the client, which runs this in its own thread."""
    for piece in _pieces(stream, size):
        # The previous part could only start when an earlier one had arrived: all places were taken.
        if len(digests) > PARTS_AT_ONCE:
            on_part()
        digests.append(md5(piece))
        yield piece


def _pieces(stream: BinaryIO, size: int) -> Iterator[bytes]:
    return iter(partial(stream.read, size), b"")


@contextmanager
def _bucket_errors() -> Iterator[None]:
    try:
        yield
    except BaseError as error:
        raise BucketError(_message(error)) from error


def _message(error: Exception) -> str:
    """Return the first line of the client's error, which may have pages, and S3's name of it."""
    text = str(error)
    line = text.partition("\n")[0].partition("<?xml")[0].rstrip(": ")
    code = _CODE.search(text)
    return line[:_MESSAGE_MAX] + (f" ({code[1]})" if code else "")


logger = logging.getLogger(__name__)

# Seconds between two looks at the folder.
_LOOK = 5.0
# Objects that `verify` asks for together.
_HEADS_AT_ONCE = 16


class WrongObjectError(Exception):
    """The object in the bucket is another than the file. The object of a WARC file is kept."""


@dataclass(slots=True)
class UploadStats:
    """Counts since the start: files verified in the bucket and noted, their bytes, failed tries.

    ``waiting`` is the number of files not uploaded yet, as of the last look at the folder.
    ``verified`` is the number of noted files that `Uploader.verify` has looked at, ``wrong`` has a
    line for each whose object is not as noted.
    """

    files: int = 0
    bytes: int = 0
    failed: int = 0
    waiting: int = 0
    verified: int = 0
    wrong: list[str] = field(default_factory=list)


class Uploader:
    """Uploads the finished files of ``folder``, and changed ones again, from `open` to `close`.

    A file counts as uploaded when its object has the same size and the expected ETag, that of the
    bytes read from the disk. If the ETag differs, as with encryption by KMS, the object is read
    back and compared. Then the file is noted. With ``delete`` a WARC file is removed after that;
    its index stays. ``look`` is the seconds between two looks at the folder.

    A process may die anywhere. It leaves an object, which the next start finds, or parts alone,
    which S3 removes by a lifecycle rule.
    """

    def __init__(
        self, folder: Path, destination: Destination, *, delete: bool, look: float = _LOOK
    ) -> None:
        self._folder = folder
        self._destination = destination
        self._delete = delete
        self._look_every = look
        self._bucket = Bucket(destination)
        self._notes = UploadLog(folder, destination)
        self._plan = UploadPlan()
        # Noted files whose object is missing.
        self._missing: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        # Times at which the folder was last looked at, and the store last took something.
        self._looked = -inf
        self._moved = -inf
        self.stats = UploadStats()

    async def open(self) -> None:
        """Lock and read the notes.

        :raises ArchiveError: another process uploads from the folder
        :raises OSError: the notes cannot be read or made
        """
        await asyncio.to_thread(self._notes.open)

    async def peek(self) -> None:
        """Count the waiting files without locking the notes; all wait if these cannot be read."""
        with suppress(OSError):
            await asyncio.to_thread(self._notes.read)
        await self._look()

    async def check(self) -> None:
        """Check the bucket.

        :raises BucketError: the bucket does not exist, cannot be reached, or may not be listed
        """
        await self._bucket.check()

    async def verify(self) -> None:
        """Compare size and ETag of each noted file's object with the note.

        Files that are still in the folder, and whose object is missing, are uploaded again. Raises
        BucketError.
        """
        notes = self._notes.uploaded()
        for start in range(0, len(notes), _HEADS_AT_ONCE):
            some = notes[start : start + _HEADS_AT_ONCE]
            found = await asyncio.gather(*(self._bucket.head(note.name) for note in some))
            for note, stored in zip(some, found, strict=True):
                if stored != (note.size, note.etag):
                    if stored is None:
                        self._missing.add(note.name)
                    self.stats.wrong.append(_difference(note, stored))
        self.stats.verified = len(notes)

    async def finish(
        self, stalled_after: float = STALLED_AFTER, report: Callable[[], None] = lambda: None
    ) -> int:
        """Upload the finished files and return how many are left.

        It ends early when the store has taken nothing for ``stalled_after`` seconds, plus the time
        that the parts in flight need on the slowest uplink: the client reports a part only when it
        has arrived. ``report`` is called after each step.
        """
        self._plan.forgive()
        self._note_progress()
        await self._look()
        while self._plan.waiting:
            left = self._moved + stalled_after + self._plan.time_in_flight - time.monotonic()
            if left <= 0:
                break
            await self.step(at_most=left)
            report()
        return self._plan.waiting

    async def close(self) -> None:
        """Cancel the uploads in flight, then unlock the notes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # In a thread: it may wait for a note that another thread still writes.
        await asyncio.to_thread(self._notes.close)

    async def step(self, at_most: float = inf) -> None:
        """Begin the uploads that may begin, then wait.

        Returns when an upload has ended, one may be retried, or the next look at the folder is due;
        at the latest after ``at_most`` seconds. Uploads in flight continue between two steps.
        """
        if time.monotonic() - self._looked >= self._look_every:
            await self._look()
        now = time.monotonic()
        while len(self._tasks) < FILES_AT_ONCE and (file := self._plan.take(now)):
            self._tasks.add(asyncio.create_task(self._upload(file)))
        wait = min(at_most, max(0.0, self._looked + self._look_every - now))
        if len(self._tasks) < FILES_AT_ONCE:
            wait = min(wait, self._plan.wait(now))
        if not self._tasks:
            await asyncio.sleep(wait)
            return
        done, self._tasks = await asyncio.wait(
            self._tasks, timeout=wait, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            task.result()

    async def _look(self) -> None:
        self._looked = time.monotonic()
        try:
            found = await asyncio.to_thread(finished_files, self._folder)
        except OSError as error:
            logger.error("%s cannot be read, so nothing is uploaded: %s", self._folder, error)
            return
        names = {file.name for file in found}
        self._plan.see(file for file in found if self._wants(file, names))
        self.stats.waiting = self._plan.waiting

    def _wants(self, file: LocalFile, names: set[str]) -> bool:
        """Return whether a file must be uploaded or removed; ``names`` are those in the folder."""
        # An index without a WARC file is merged of several, or its WARC file is still open.
        if file.warc not in names and self._notes.last(file.warc) is None:
            return False
        is_noted = self._notes.of(file) is not None and file.name not in self._missing
        return not is_noted or self._is_removed(file)

    def _is_removed(self, file: LocalFile) -> bool:
        """Return whether a file is removed after its upload. An index stays: it finds captures."""
        return self._delete and file.is_warc

    async def _upload(self, file: LocalFile) -> None:
        try:
            await self._upload_noted(file)
        except (BucketError, WrongObjectError, OSError) as error:
            self._fail(file, error)
        else:
            if self._plan.down:
                logger.info("Upload to %s works again", self._destination.url())
            self._plan.done(file)
            self.stats.waiting = self._plan.waiting
            self._note_progress()

    def _fail(self, file: LocalFile, error: Exception) -> None:
        self.stats.failed += 1
        by_store, known = isinstance(error, BucketError), self._plan.down
        wait = self._plan.failed(file, time.monotonic(), by_store=by_store)
        if not by_store:
            logger.error("%s failed to upload, retry in %.0f s: %s", file.name, wait, error)
        elif not known:
            logger.warning(
                "%s refuses files, which wait in %s and are retried: %s",
                self._destination.url(),
                self._folder,
                error,
            )

    async def _upload_noted(self, file: LocalFile) -> None:
        """Upload a file and note it, unless its object is noted and still there; then remove it."""
        path = self._folder / file.name
        note = self._notes.of(file)
        if note is None or await self._bucket.head(file.name) != (note.size, note.etag):
            stored = await self._store(file, path)
            await asyncio.to_thread(self._notes.add, file, stored.etag)
            self.stats.files += 1
            self.stats.bytes += file.size
        self._missing.discard(file.name)
        if self._is_removed(file):
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _store(self, file: LocalFile, path: Path) -> StoredObject:
        """Upload a file if its object is missing or outdated, verify the object and return it.

        Raises WrongObjectError, BucketError and OSError.
        """
        stored = await self._bucket.head(file.name)
        if stored is not None:
            expected = await asyncio.to_thread(local_etag, path, file.size)
            if await self._is_same(file, path, stored, expected):
                return stored
            last = self._notes.last(file.name)
            if file.is_warc and (last is None or last.etag is not None):
                # No upload of ours had begun.
                raise WrongObjectError(
                    f"{self._destination.url(file.name)} exists with other content:"
                    " remove one of them"
                )
        await asyncio.to_thread(self._notes.add, file, None)
        expected = await self._bucket.put(path, file.size, self._note_progress)
        stored = await self._bucket.head(file.name)
        if stored is None or not await self._is_same(file, path, stored, expected):
            raise WrongObjectError(f"{self._destination.url(file.name)} differs from the file sent")
        return stored

    async def _is_same(self, file: LocalFile, path: Path, stored: StoredObject, etag: str) -> bool:
        if stored.size != file.size or stored.etag == etag:
            return stored.size == file.size
        return await self._bucket.equals(path, file.size, self._note_progress)

    def _note_progress(self) -> None:
        """Note that the store took or returned a part or a file. Any thread may call it."""
        self._moved = time.monotonic()


def _difference(note: UploadNote, stored: StoredObject | None) -> str:
    """Return in words how an object differs from its note."""
    if stored is None:
        return f"{note.url} is missing"
    return (
        f"{note.url} has {stored.size:,} bytes and the ETag {stored.etag}, and had {note.size:,}"
        f" bytes and {note.etag}"
    )


def finished_files(folder: Path) -> list[LocalFile]:
    """Return the finished files and indexes in a folder, if it exists. Blocks. Raises OSError."""
    found = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if is_finished(entry.name) and entry.is_file(follow_symlinks=False):
                # It may have been removed meanwhile.
                with suppress(FileNotFoundError):
                    stat = entry.stat(follow_symlinks=False)
                    found.append(LocalFile(entry.name, stat.st_size, stat.st_mtime_ns))
    return found


def upload_folder(
    folder: Path,
    destination: Destination,
    *,
    delete: bool = False,
    verify: bool = False,
    stalled_after: float = STALLED_AFTER,
    report: Callable[[UploadStats], None] = lambda _: None,
) -> UploadStats:
    """Upload the finished files of ``folder`` that are not noted, and return the counts. Blocks.

    With ``verify`` the noted ones are verified first. Ends as `Uploader.finish` does. ``report`` is
    called with the counts after each step.

    :raises ArchiveError: another process uploads from the folder
    :raises BucketError: the bucket does not exist, cannot be reached, or may not be listed
    :raises OSError: the notes cannot be read or made
    """

    async def upload() -> UploadStats:
        uploader = Uploader(folder, destination, delete=delete)
        await uploader.open()
        try:
            await uploader.check()
            if verify:
                await uploader.verify()
            await uploader.finish(stalled_after, lambda: report(uploader.stats))
        finally:
            await uploader.close()
        return uploader.stats

    return asyncio.run(upload())
