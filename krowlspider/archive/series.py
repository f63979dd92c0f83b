"""A series of WARC files in one folder, of which at most one is open; blocks on the disk."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING

from krowlspider.archive import cdxj, records
from krowlspider.archive.capture import Location
from krowlspider.archive.composer import Composer
from krowlspider.archive.compression import compressor
from krowlspider.archive.digests import digest
from krowlspider.archive.disk import OPEN, finish, finish_name, sync_directory
from krowlspider.archive.errors import ArchiveError, CaptureRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from krowlspider.archive.capture import Capture, NameAnswer, Note
    from krowlspider.archive.payloadindex import PayloadIndex

# No leading dot: neither a hidden file nor a parent folder. 200 of the 255 bytes that Linux allows
# a file name are left to prefix and hostname together.
_PREFIX = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_NAME_LENGTH = 200
_NOT_IN_HOSTNAME = re.compile(r"[^A-Za-z0-9._-]")
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# Bytes of the lines of a file's index, which wait in memory until it is closed, with 49 more each: of ordinary pages
# they are 12 MB.
INDEX_MAX = 64 * 1024 * 1024
# Lines sorted in one go, 2 ms in which no other thread runs.
_SORTED_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class SeriesOptions:
    """How files are written and when they end.

    ``prefix`` and ``hostname`` go into their names. One ends with what reaches ``max_size`` compressed bytes, or when
    it is ``max_age`` seconds old. ``info`` are the fields of each one's warcinfo record, ``digest`` is an algorithm
    (``sha1`` or ``sha256``), ``compression`` one of `compressor`'s names, ``seed`` a secret of the `Composer`.
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
    """What was written since the start: records (warcinfo among them), revisits among them, compressed bytes, bytes
    of payload, files begun."""

    records: int = 0
    revisits: int = 0
    bytes_written: int = 0
    bytes_payload: int = 0
    files: int = 0


class _IndexLines:
    """The lines of the open file's index, in sorted runs."""

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
        """Write the index of the file ``path``, durably. Raises OSError."""
        self._sort()
        cdxj.write_index(path, merge(*self._runs))


class WarcSeries:
    """Appends captures, the records of each side by side, to files in ``directory``.

    The open file ends with a whole record also when a write has failed, so what failed with an OSError may be tried
    again. After an ArchiveError the series may only be abandoned. ``payloads`` are those that later captures are
    revisits of; None keeps every capture whole. Raises ValueError for options that cannot be used.
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
        # What the open file will be called.
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
        """Write its records; durable after the next `sync`.

        Raises CaptureRefused or OSError, nothing of the capture being written.
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
        self.stats.bytes_payload += len(capture.payload)
        return location

    def note(self, note: Note) -> None:
        """Write a metadata record. Raises as `append` does."""
        self._append_one(lambda: self._maker.metadata(note, _new_id()))

    def name(self, answer: NameAnswer) -> None:
        """Write the resource record of an answer of the DNS. Raises as `append` does."""
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
        """Make durable all that was appended, and end a file that is old enough.

        Raises ArchiveError, which is final whatever the disk said: an fsync tried again may report
        success over pages that the kernel has dropped. OSError when there is no room to end the file.
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
        """Make the open file durable, write its index and give it its final name. Raises OSError or ArchiveError."""
        if self._descriptor is None:
            return
        self._sync()
        self._composer.synced()
        # Before the name: a finished file always has its index.
        self._lines.write(finish_name(self._path))
        # Let go of only then: without room for the name the file is still the open one.
        finish(self._path)
        self.abandon()
        self._size = 0

    def abandon(self) -> None:
        """Let go of the open file as it is; mending brings it to an end."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    @property
    def _old(self) -> bool:
        return time.monotonic() - self._begun >= self._options.max_age

    def _ready(self) -> int:
        """The descriptor of a file that has not ended."""
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
            # A file without its warcinfo is none.
            self.abandon()
            self._path.unlink()
            raise
        self.stats.records += 1
        self.stats.files += 1
        return descriptor

    def _create(self, stamp: str) -> int:
        """Open the next file of a name that is not taken, finished or open."""
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
        """Where a member that is written next lies."""
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
        """Append to the open file all of ``content``, or nothing. Raises OSError or ArchiveError."""
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
