"""Write a series of WARC files in one folder, at most one of them open. Calls block on the disk."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING

from krowlspider.archive.disk import OPEN, finish, finish_name, sync_directory
from krowlspider.archive.errors import ArchiveError, CaptureRefused
from krowlspider.archive.index import cdxj
from krowlspider.archive.payloads.digests import digest
from krowlspider.archive.write import records
from krowlspider.archive.write.capture import Location
from krowlspider.archive.write.composer import Composer
from krowlspider.archive.write.compression import compressor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from krowlspider.archive.payloads.payload_index import PayloadIndex
    from krowlspider.archive.write.capture import Capture, FetchNote, NameAnswer

# No leading dot: neither a hidden file nor a parent folder.
_PREFIX = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
# Bytes of prefix and hostname together; the other parts need the rest of Linux's 255 for a name.
_NAME_LENGTH = 200
_NOT_IN_HOSTNAME = re.compile(r"[^A-Za-z0-9._-]")
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# Bytes of index lines at which a file ends: they wait in memory until the file is closed.
# Each line takes 49 bytes more as a Python object.
INDEX_MAX = 64 * 1024 * 1024
# Lines sorted in one call. It must be short: no other thread runs during a sort.
_SORTED_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class SeriesOptions:
    """How files are written and when they end.

    ``prefix`` and ``hostname`` become parts of the file names. A file ends when it has reached
    ``max_size`` compressed bytes or is ``max_age`` seconds old. ``info`` holds the fields of each
    file's warcinfo record. ``digest`` is ``sha1`` or ``sha256``. ``compression`` is a name that
    `compressor` takes. ``seed`` is the secret that `Composer` uses.
    """

    prefix: str
    hostname: str
    max_size: int
    max_age: float
    info: Mapping[str, str]
    digest: str = "sha1"
    compression: str = "isal-1"
    seed: int = 0


@dataclass(slots=True)
class WriterStats:
    """Counts since the start: ``records`` written, warcinfo and revisits among them; ``revisits``;
    ``bytes_written``, compressed; ``files`` begun."""

    records: int = 0
    revisits: int = 0
    bytes_written: int = 0
    files: int = 0


class _IndexLines:
    """The index lines of the open file, kept in sorted runs; ``size`` counts their bytes."""

    def __init__(self) -> None:
        self._runs: list[list[str]] = []
        self._last: list[str] = []
        self.size = 0

    def add(self, line: str) -> None:
        self.size += len(line)
        self._last.append(line)
        if len(self._last) == _SORTED_AT_ONCE:
            self._sort()

    def _sort(self) -> None:
        self._last.sort()
        self._runs.append(self._last)
        self._last = []

    def write(self, path: Path) -> None:
        """Write the index of the WARC file ``path`` durably. Raises OSError."""
        self._sort()
        cdxj.write_index(path, merge(*self._runs))


class WarcSeries:
    """Appends captures to files in ``directory``; the two records of a capture stand side by side.

    The open file always ends with a whole record, even after a failed write. So a call that raised
    OSError may be retried. After an ArchiveError the only valid call is `abandon`. ``payloads``
    knows the payloads already stored; a capture of one of them becomes a revisit. With None every
    capture is stored whole.

    :raises ValueError: the options cannot be used
    """

    def __init__(
        self, directory: Path, options: SeriesOptions, payloads: PayloadIndex | None = None
    ) -> None:
        prefix, hostname = options.prefix, options.hostname
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"a file prefix is of letters, digits, '.', '_', '-': {prefix!r}")
        if not hostname or len(prefix) + len(hostname) > _NAME_LENGTH:
            raise ValueError(f"no hostname, or too long for a file name: {hostname!r}, {prefix!r}")
        self._directory = directory
        self._options = options
        self._hostname = _NOT_IN_HOSTNAME.sub("-", hostname)
        self._info_block = records.info_block({"hostname": self._hostname, **options.info})
        self._compress = compressor(options.compression)
        self._composer = Composer(options.digest, self._compress, payloads, options.seed)
        self._descriptor: int | None = None
        self._path = directory
        # The final name of the open file.
        self._name = ""
        self._maker = records.RecordMaker("", options.digest)
        self._lines = _IndexLines()
        self._size = 0
        self._begun = 0.0
        self._serial = 0
        self._content_durable = True
        self._name_durable = True
        self.stats = WriterStats()

    def append(self, capture: Capture) -> Location:
        """Write the records of a capture and return where the first one lies.

        The records are durable after the next `sync`. An error leaves nothing of the capture in the
        file.

        :raises CaptureRefused: the capture cannot be a record
        :raises OSError: the disk failed; the call may be retried
        :raises ArchiveError: the series can only be abandoned
        """
        descriptor = self._ready()
        try:
            composed = self._composer.compose(capture, self._maker)
        except ValueError as error:
            raise CaptureRefused(str(error)) from error
        location = self._place(composed.first)
        self._write(descriptor, composed.first + composed.request)
        self._composer.written(capture, composed)
        self._index(
            location,
            url=capture.url,
            date=capture.started,
            mime=cdxj.REVISIT if composed.revisit else capture.media_type,
            status=str(capture.status),
            digest=composed.payload,
        )
        self.stats.records += 2
        self.stats.revisits += composed.revisit
        return location

    def note(self, note: FetchNote) -> None:
        """Write the metadata record of a note. Raises the errors of `append`."""
        self._append_one(lambda: self._maker.metadata(note, _new_id()))

    def name(self, answer: NameAnswer) -> None:
        """Write the resource record of a DNS answer. Raises the errors of `append`."""
        location = self._append_one(lambda: self._maker.resource(answer, _new_id()))
        self._index(
            location,
            url=records.dns_uri(answer.name),
            date=answer.started,
            mime=records.DNS,
            status="",
            digest=digest(records.dns_lines(answer), self._options.digest),
        )

    def _append_one(self, make: Callable[[], bytes]) -> Location:
        descriptor = self._ready()
        try:
            member = self._compress(make())
        except ValueError as error:
            raise CaptureRefused(str(error)) from error
        location = self._place(member)
        self._write(descriptor, member)
        self.stats.records += 1
        return location

    def sync(self) -> None:
        """Make all appended records durable, then close the open file if it has reached its age.

        A failed fsync is final, whatever its cause. A retried fsync may report success although the
        kernel has dropped the pages.

        :raises ArchiveError: the records could not be made durable
        :raises OSError: the file could not be closed, for example on a full disk
        """
        self._sync()
        self._composer.synced()
        if self._descriptor is not None and self._old:
            self.close()

    def _sync(self) -> None:
        try:
            if self._descriptor is not None and not self._content_durable:
                os.fsync(self._descriptor)
                self._content_durable = True
            if not self._name_durable:
                sync_directory(self._directory)
                self._name_durable = True
        except OSError as error:
            raise ArchiveError(f"{self._path} cannot be made durable: {error}") from error

    def close(self) -> None:
        """Make the open file durable, write its index and rename the file to its final name.

        Does nothing when no file is open.

        :raises OSError: the index or the name could not be written; the file is still open
        :raises ArchiveError: the content or the name could not be made durable
        """
        if self._descriptor is None:
            return
        self._sync()
        self._composer.synced()
        # The index comes before the final name, so every finished file has one.
        self._lines.write(finish_name(self._path))
        # Rename before closing the descriptor: if the rename fails, the file is still open.
        finish(self._path)
        self.abandon()
        self._size = 0

    def abandon(self) -> None:
        """Close the descriptor; mending finishes a file that has no final name yet."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    @property
    def _old(self) -> bool:
        return time.monotonic() - self._begun >= self._options.max_age

    def _ready(self) -> int:
        """Return the descriptor of the open file; end a full or old one and begin the next."""
        full = self._size >= self._options.max_size or self._lines.size >= INDEX_MAX
        if self._descriptor is not None and (full or self._old):
            self.close()
        return self._begin() if self._descriptor is None else self._descriptor

    def _begin(self) -> int:
        descriptor = self._create(time.strftime("%Y%m%d%H%M%S", time.gmtime()))
        self._descriptor = descriptor
        self._name_durable = False
        self._size = 0
        self._begun = time.monotonic()
        self._lines = _IndexLines()
        self._maker = records.RecordMaker(_new_id(), self._options.digest)
        date = records.warc_date(time.time())
        head = self._maker.warcinfo(self._info_block, date=date, filename=self._name)
        try:
            self._write(descriptor, self._compress(head))
        except OSError:
            # Every file begins with its warcinfo record, so remove one that has none.
            self.abandon()
            self._path.unlink()
            raise
        self.stats.records += 1
        self.stats.files += 1
        return descriptor

    def _create(self, stamp: str) -> int:
        """Create an open file and return its descriptor; skip names of finished or open files."""
        while True:
            serial, self._serial = self._serial, self._serial + 1
            name = f"{self._options.prefix}-{stamp}-{serial:05d}-{self._hostname}-{os.getpid()}.warc.gz"
            if (self._directory / name).exists():
                continue
            self._name, self._path = name, self._directory / (name + OPEN)
            try:
                return os.open(self._path, _NEW_FILE, mode=0o644)
            except FileExistsError:
                continue

    def _place(self, member: bytes) -> Location:
        """Return the location of ``member`` if it is written next."""
        return Location(self._name, self._size, len(member))

    def _index(
        self, place: Location, *, url: str, date: float, mime: str, status: str, digest: str
    ) -> None:
        self._lines.add(
            cdxj.line(
                url=url,
                date=records.warc_date(date),
                mime=mime,
                status=status,
                digest=digest,
                length=place.length,
                offset=place.offset,
                filename=place.file,
            )
        )

    def _write(self, descriptor: int, content: bytes) -> None:
        """Append all of ``content`` to the open file, or nothing.

        :raises OSError: the write failed; the file was cut back to its last whole record
        :raises ArchiveError: the file could not be cut back either
        """
        self._content_durable = False
        try:
            written = os.write(descriptor, content)
            while written < len(content):
                written += os.write(descriptor, memoryview(content)[written:])
        except OSError:
            self._cut_back(descriptor)
            raise
        self._size += len(content)
        self.stats.bytes_written += len(content)

    def _cut_back(self, descriptor: int) -> None:
        try:
            os.ftruncate(descriptor, self._size)
            os.lseek(descriptor, self._size, os.SEEK_SET)
        except OSError as error:
            raise ArchiveError(f"{self._path} cannot be cut back: {error}") from error


def _new_id() -> str:
    return records.record_id(os.urandom(16))
