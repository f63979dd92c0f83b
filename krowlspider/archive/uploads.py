"""Which finished file is uploaded next, and notes of those that are uploaded and verified.

Decide which finished file to upload next, where to, in which parts, and when to retry. Pure: the
caller passes times and files.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import threading
import time
from dataclasses import asdict, dataclass
from math import inf
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from krowlspider.archive.cdxj import INDEX, WARC
from krowlspider.archive.disk import ArchiveError, sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

# Seconds that an end waits for a store that takes nothing, besides the time that the parts in
# flight need on the slowest uplink.
STALLED_AFTER = 60.0
# S3's rules for bucket names, and the underscores and capitals that old buckets have.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
# The characters that S3 calls safe in keys, without those that some client escapes.
_SEGMENT = re.compile(r"(?!\.\.?$)[A-Za-z0-9._=+-]+")


class Destination(Struct, frozen=True):
    """A place in a bucket: file ``X`` becomes the object ``prefix/X``.

    ``endpoint`` is the URL of the store, None for AWS.
    """

    bucket: str
    prefix: str
    endpoint: str | None = None

    @classmethod
    def parse(cls, url: str, endpoint: str | None = None) -> Destination:
        """Return the place that ``s3://bucket/prefix`` names.

        :raises ValueError: the URL names none; the message reads on from the URL
        """
        scheme, _, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme != "s3" or not _BUCKET.fullmatch(bucket):
            raise ValueError("is not s3://bucket or s3://bucket/prefix")
        segments = prefix.removesuffix("/").split("/") if prefix else []
        if not all(map(_SEGMENT.fullmatch, segments)):
            raise ValueError("has a prefix that is not of letters, digits and '._=+-' between '/'")
        return cls(bucket, "/".join(segments), endpoint)

    def url(self, name: str = "") -> str:
        """Return the URL of the object of file ``name``; without a name, that of the place."""
        return "/".join(part for part in (f"s3://{self.bucket}", self.prefix, name) if part)


def is_endpoint(url: str) -> bool:
    """Return whether ``url`` is an HTTP(S) URL without user, query and fragment.

    A user and password would appear in the log.
    """
    try:
        parts = urlsplit(url)
        port_fits = parts.port is None or parts.port > 0
    except ValueError:
        return False
    bare = parts.username is None and not parts.query and not parts.fragment
    visible = url.isascii() and url.isprintable() and " " not in url
    return (
        parts.scheme in {"http", "https"}
        and bool(parts.hostname)
        and port_fits
        and bare
        and visible
    )


# Bytes of a part; a larger file is sent in parts. S3 requires 5 MiB or more.
PART = 8 * 1024 * 1024
# The most parts that S3 takes for one object; R2 also requires parts of equal size.
_PARTS_MAX = 10_000
# Files in flight at a time, and parts of each.
FILES_AT_ONCE = 2
PARTS_AT_ONCE = 2
# Bytes a second that the uplink must carry for all parts in flight together: 1 Mbit/s.
SLOWEST = 125_000
# Seconds that one request may take: all parts in flight share the slowest uplink, plus 30 s.
REQUEST = FILES_AT_ONCE * PARTS_AT_ONCE * PART / SLOWEST + 30.0

# Names of finished files; nothing else in the folder is uploaded.
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(\.warc\.gz|\.cdxj)")
# Seconds until a failed upload is retried, doubled with each failure. The longest wait is short,
# so that a store that recovers is soon used again.
_FIRST_WAIT = 1.0
_LONGEST_WAIT = 300.0
# The store's key in the failures; no file has this name.
_STORE = ""


def part_size(size: int) -> int:
    """Return the bytes of each part but the last of a file, for its ETag by its size alone."""
    return max(PART, -(-size // _PARTS_MAX))


def in_flight(size: int) -> int:
    """Return the most bytes in flight at a time of a file of ``size`` bytes."""
    return min(size, PARTS_AT_ONCE * part_size(size))


def etag_of(digests: list[bytes], *, whole: bool) -> str:
    """Return the ETag that S3 assigns, from the MD5 of the object or of each part."""
    if whole:
        return digests[0].hex()
    return f"{md5(b''.join(digests)).hex()}-{len(digests)}"


def md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


class LocalFile(Struct, frozen=True):
    """A version of a finished file; another version differs in size (bytes) or time (epoch ns)."""

    name: str
    size: int
    mtime_ns: int

    @property
    def is_warc(self) -> bool:
        """Return whether this is a WARC file, which never changes; an index may be rewritten."""
        return self.name.endswith(WARC)

    @property
    def warc(self) -> str:
        """The name of the WARC file: the file's own, or that which this index belongs to."""
        return self.name if self.is_warc else self.name.removesuffix(INDEX) + WARC


def is_finished(name: str) -> bool:
    """Return whether ``name`` is that of a finished WARC file or of an index."""
    return _FILE_NAME.fullmatch(name) is not None


class UploadPlan:
    """The waiting files, those in flight, and when the next may be taken.

    Files are taken in the order of their names: oldest first, an index before its WARC file. Times
    are seconds of one monotonic clock.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, LocalFile] = {}
        self._in_flight: dict[str, LocalFile] = {}
        # By name: failures in a row, and the time of the next try.
        self._failures: dict[str, tuple[int, float]] = {}

    @property
    def waiting(self) -> int:
        """The number of files not uploaded yet, those in flight included."""
        return len(self._waiting)

    @property
    def down(self) -> bool:
        """Return whether the store has failed and no upload has succeeded since."""
        return _STORE in self._failures

    @property
    def time_in_flight(self) -> float:
        """The seconds in which all bytes in flight pass the slowest uplink."""
        return sum(in_flight(file.size) for file in self._in_flight.values()) / SLOWEST

    def see(self, found: Iterable[LocalFile]) -> None:
        """Replace the waiting files by ``found``; forget the failures of files that are gone."""
        self._waiting = {file.name: file for file in sorted(found, key=lambda each: each.name)}
        for name in self._failures.keys() - self._waiting.keys() - {_STORE}:
            del self._failures[name]

    def take(self, now: float) -> LocalFile | None:
        """Return the file to upload now, or None; it is in flight until `done` or `failed`."""
        if now < self._due(_STORE):
            return None
        for name, file in self._waiting.items():
            if name not in self._in_flight and now >= self._due(name):
                self._in_flight[name] = file
                return file
        return None

    def wait(self, now: float) -> float:
        """Return the seconds until `take` may return a file; infinity if no other file waits."""
        idle = self._waiting.keys() - self._in_flight.keys()
        due = max(self._due(_STORE), min(map(self._due, idle), default=inf))
        return max(0.0, due - now)

    def done(self, file: LocalFile) -> None:
        """Remove an uploaded file from the plan, and forget its failures and the store's."""
        for files in (self._in_flight, self._waiting, self._failures):
            files.pop(file.name, None)
        self._failures.pop(_STORE, None)

    def failed(self, file: LocalFile, now: float, *, by_store: bool) -> float:
        """Keep the file waiting; return the seconds until it, or ``by_store`` any, is tried."""
        del self._in_flight[file.name]
        name = _STORE if by_store else file.name
        times, due = self._failures.get(name, (0, now))
        if now < due:
            # Another upload, sent at the same time, has failed already: count the two once.
            return due - now
        wait = min(_FIRST_WAIT * 2.0**times, _LONGEST_WAIT)
        # Bound the exponent: a store may be down for weeks.
        self._failures[name] = (min(times + 1, 30), now + wait)
        return wait

    def forgive(self) -> None:
        """Forget all failures: every file may be tried now."""
        self._failures.clear()

    def _due(self, name: str) -> float:
        return self._failures.get(name, (0, -inf))[1]


NOTES = "uploaded.jsonl"


@dataclass(frozen=True)
class UploadNote:
    """One note: which version of a file (bytes, epoch ns) is at ``url`` in the store ``endpoint``.

    ``etag`` is None if the upload had only begun: an object found there later is ours.
    """

    name: str
    size: int
    mtime_ns: int
    etag: str | None
    url: str
    endpoint: str | None


class UploadLog:
    """The notes of one folder; one process at a time holds them, from `open` to `close`.

    Each note is a line that is appended and synced. The last line of a file counts. A line that a
    dying process cut is ignored; at worst a file is then compared with its object again.
    """

    def __init__(self, folder: Path, destination: Destination) -> None:
        self._folder = folder
        self._destination = destination
        self._notes: dict[str, UploadNote] = {}
        self._descriptor: int | None = None
        # Several threads add notes, and a failed one is cut off the end of the file.
        # The lock also keeps `close` from closing the file during a write.
        self._one_at_a_time = threading.Lock()

    def open(self) -> None:
        """Lock and read the notes; make the file if it is missing. Idempotent.

        :raises ArchiveError: another process holds them
        :raises OSError: they cannot be read or made
        """
        with self._one_at_a_time:
            if self._descriptor is None:
                self._open()

    def _open(self) -> None:
        path = self._folder / NOTES
        new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if new:
                sync_directory(self._folder)
            content = path.read_bytes()
            if content and not content.endswith(b"\n"):
                os.write(descriptor, b"\n")
            self.read()
        except BlockingIOError as error:
            os.close(descriptor)
            raise ArchiveError(f"another process uploads the files in {self._folder}") from error
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def read(self) -> None:
        """Read the notes without locking them; none if the file is missing. Raises OSError."""
        place = self._destination
        self._notes = {
            note.name: note
            for note in _notes_in(self._folder)
            if (note.url, note.endpoint) == (place.url(note.name), place.endpoint)
        }

    def close(self) -> None:
        """Unlock the notes, after a line that is being written is durable. Blocks."""
        with self._one_at_a_time:
            if self._descriptor is not None:
                descriptor, self._descriptor = self._descriptor, None
                os.close(descriptor)

    def of(self, file: LocalFile) -> UploadNote | None:
        """Return the note of this version of a file; None if it is not uploaded."""
        note = self.last(file.name)
        if note is None or note.etag is None:
            return None
        return note if (note.size, note.mtime_ns) == (file.size, file.mtime_ns) else None

    def last(self, name: str) -> UploadNote | None:
        """Return the last note of any version of a file, also of an upload that had only begun."""
        return self._notes.get(name)

    def uploaded(self) -> list[UploadNote]:
        """Return the last note of each file whose upload is complete."""
        return [note for note in self._notes.values() if note.etag is not None]

    def add(self, file: LocalFile, etag: str | None) -> None:
        """Note durably that a file is uploaded, or without ``etag`` that its upload has begun.

        :raises OSError: the line could not be written, or the notes are closed; nothing is noted
        """
        place = self._destination
        url = place.url(file.name)
        note = UploadNote(file.name, file.size, file.mtime_ns, etag, url, place.endpoint)
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps(asdict(note) | {"time": moment}).encode() + b"\n"
        with self._one_at_a_time:
            if self._descriptor is None:
                raise OSError(errno.EBADF, "closed", str(self._folder / NOTES))
            _append(self._descriptor, line)
            self._notes[file.name] = note


def uploaded(folder: Path) -> dict[str, str]:
    """Return the URL of the last object of each file name that was uploaded. Raises OSError."""
    return {note.name: note.url for note in _notes_in(folder) if note.etag is not None}


def _append(descriptor: int, line: bytes) -> None:
    """Write and sync a line, or leave none of it in the file. Raises OSError."""
    end = os.fstat(descriptor).st_size
    rest = memoryview(line)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, end)
        raise


def _notes_in(folder: Path) -> Iterator[UploadNote]:
    try:
        content = (folder / NOTES).read_bytes()
    except FileNotFoundError:
        return
    for line in content.splitlines():
        try:
            values = json.loads(line)
            yield UploadNote(**{name: values[name] for name in UploadNote.__dataclass_fields__})
        except (ValueError, TypeError, KeyError):
            # The process died while it wrote this line.
            continue
