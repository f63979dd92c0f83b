"""Write a series of WARC files in one folder, at most one of them open. Calls block on the disk.

The WARC file that is being written, and the compression of its records to gzip members. Calls of
`OpenFile` block on the disk.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from functools import partial
from heapq import merge
from typing import TYPE_CHECKING

from isal import isal_zlib
from msgspec import Struct
from msgspec.structs import replace
from zlib_ng import zlib_ng

from krowlspider.archive import cdxj, gemini
from krowlspider.archive.disk import OPEN, ArchiveError, CaptureRefused, finish, sync_directory
from krowlspider.archive.payload import digest
from krowlspider.archive.reading import Location, Synced
from krowlspider.archive.surt import query_of
from krowlspider.archive.write import records
from krowlspider.archive.write.composer import Composer, PayloadIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from krowlspider.archive.write.records import Capture, FetchNote, Resource

# isal is several times faster than zlib-ng, which compresses better.
COMPRESSIONS = re.compile(r"isal-([0-3])|zlib-ng-([1-9])")
_GZIP = 31  # zlib's ``wbits``
# Records up to this many bytes, mostly requests, are compressed by isal's level 0: it is faster,
# and on so few bytes costs little space.
_SMALL = 2048


def compressor(name: str) -> Callable[[bytes], bytes]:
    """Return a function that compresses bytes to one gzip member; other threads run meanwhile.

    :raises ValueError: ``name`` is not one of COMPRESSIONS
    """
    found = COMPRESSIONS.fullmatch(name)
    if found is None:
        raise ValueError(
            f"not a compression: {name!r}; give isal-0 to isal-3, or zlib-ng-1 to zlib-ng-9"
        )
    if found[1] is not None:
        return partial(_isal, int(found[1]))
    dense = int(found[2])
    return lambda record: zlib_ng.compress(record, dense, _GZIP)


def piecewise(name: str, pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Yield one gzip member of all ``pieces`` of a record, as they come. ``name`` is valid."""
    kind, _, level = name.rpartition("-")
    new = isal_zlib.compressobj if kind == "isal" else zlib_ng.compressobj
    member = new(int(level), wbits=_GZIP)
    for piece in pieces:
        yield member.compress(piece)
    yield member.flush()


def _isal(level: int, record: bytes) -> bytes:
    return isal_zlib.compress(record, level if len(record) > _SMALL else 0, _GZIP)


_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class OpenFile:
    """An append-only file that always ends with a whole record, even after a failed write.

    ``final`` is the path of the finished file, ``size`` the bytes written, ``begun`` a monotonic
    time in seconds.

    :raises FileExistsError: there is an open file of this name
    :raises OSError: the file cannot be made
    """

    def __init__(self, final: Path) -> None:
        self.final = final
        self._path = final.with_name(final.name + OPEN)
        self._descriptor = os.open(self._path, _NEW_FILE, mode=0o644)
        self.size = 0
        self.begun = time.monotonic()
        self._content_durable = True
        self._name_durable = False

    def append(self, member: bytes, more: bytes = b"") -> Location:
        """Append ``member`` and ``more``, or nothing; return where ``member`` lies.

        :raises OSError: the write failed; the file was cut back to its last whole record
        :raises ArchiveError: the file could not be cut back either
        """
        place = Location(self.final.name, self.size, len(member))
        content = member + more
        self._content_durable = False
        try:
            self._write(content)
        except OSError:
            self._cut_back()
            raise
        self.size += len(content)
        return place

    def append_pieces(self, pieces: Iterable[bytes], more: bytes) -> Location:
        """Append a member that comes in pieces, and ``more``, as `append` does."""
        self._content_durable = False
        length = 0
        try:
            for piece in pieces:
                self._write(piece)
                length += len(piece)
            self._write(more)
        except BaseException:
            self._cut_back()
            raise
        place = Location(self.final.name, self.size, length)
        self.size += length + len(more)
        return place

    def _write(self, content: bytes) -> None:
        written = os.write(self._descriptor, content)
        while written < len(content):
            written += os.write(self._descriptor, memoryview(content)[written:])

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._descriptor, self.size)
            os.lseek(self._descriptor, self.size, os.SEEK_SET)
        except OSError as error:
            raise ArchiveError(f"{self._path} cannot be cut back: {error}") from error

    def sync(self) -> None:
        """Make the content and the name durable.

        :raises ArchiveError: they could not be made durable
        """
        # A failed fsync is final, whatever its cause: a retried one may report success although the
        # kernel has dropped the pages.
        try:
            if not self._content_durable:
                os.fsync(self._descriptor)
                self._content_durable = True
            if not self._name_durable:
                sync_directory(self._path.parent)
                self._name_durable = True
        except OSError as error:
            raise ArchiveError(f"{self._path} cannot be made durable: {error}") from error

    def finish(self) -> None:
        """Rename the file, whose content is durable, to its final name, and close it.

        Raises the errors of `finish` in `krowlspider.archive.disk`.
        """
        finish(self._path)
        self.close()

    def close(self) -> None:
        """Close the descriptor; mending finishes a file that has no final name yet."""
        os.close(self._descriptor)

    def remove(self) -> None:
        self.close()
        self._path.unlink()


# Seconds after which a file ends even if it is smaller: uploads take finished files only.
MAX_AGE = 3600.0
# No leading dot: neither a hidden file nor a parent folder.
_PREFIX = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
# Bytes of prefix and hostname together; the other parts need the rest of Linux's 255 for a name.
_NAME_LENGTH = 200
_NOT_IN_HOSTNAME = re.compile(r"[^A-Za-z0-9._-]")
# Bytes of index lines at which a file ends: they wait in memory until the file is closed.
# Each line takes 49 bytes more as a Python object.
INDEX_MAX = 64 * 1024 * 1024
# Lines sorted in one call. It must be short: no other thread runs during a sort.
_SORTED_AT_ONCE = 5000


class SeriesOptions(Struct, frozen=True):
    """How files are written and when they end.

    ``prefix`` and ``hostname`` become parts of the file names. A file ends at ``max_size``
    compressed bytes or after ``max_age`` seconds. ``info`` holds the fields of each file's warcinfo
    record. ``digest`` is ``sha1`` or ``sha256``, ``compression`` a name that `compressor` takes.
    ``seed`` is the secret that `Composer` uses.
    """

    prefix: str
    hostname: str
    max_size: int
    info: Mapping[str, str]
    max_age: float = MAX_AGE
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


class WarcSeries:
    """Appends captures to files in ``directory``; the two records of a capture stand side by side.

    A call that raised OSError may be retried: the open file still ends with a whole record. After
    an ArchiveError the only valid call is `abandon`. ``payloads`` is that of `Composer`.

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
        self._payloads = payloads
        self._composer = Composer(options.digest, self._compress, payloads, options.seed)
        # The open file, what makes its records, its index lines and their size.
        self._file: OpenFile | None = None
        self._ids = records.RecordIds()
        self._maker = records.RecordMaker("", options.digest)
        self._lines: list[str] = []
        self._lines_size = 0
        # Records in the files before the open one.
        self._before = 0
        self._serial = 0
        # What the next file begins with, by its URI.
        self._waiting: dict[str, Resource] = {}
        self.stats = WriterStats()

    def append(self, capture: Capture) -> Location:
        """Write the records of a capture, or nothing of it; return where the first one lies.

        :raises CaptureRefused: the capture cannot be a record
        :raises OSError: the disk failed; the call may be retried
        :raises ArchiveError: the series can only be abandoned
        """
        if capture.stored is not None:
            # One at a time is in memory. The mapping of the file ends with this call.
            response, payload = capture.stored()
            capture = replace(capture, response_bytes=response, payload=payload, stored=None)
        if capture.redacted:
            capture = records.redact(capture)
        file = self._ready()
        try:
            composed = self._composer.compose(capture, self._maker)
        except ValueError as error:
            raise CaptureRefused(str(error)) from error
        if isinstance(composed.first, bytes):
            place = self._write(file, composed.first, composed.request)
        else:
            member = piecewise(self._options.compression, composed.first)
            place = file.append_pieces(member, composed.request)
            self.stats.bytes_written += place.length + len(composed.request)
        self._composer.written(capture, composed)
        media_type, status = capture.media_type, str(capture.status)
        if capture.protocol:
            message = gemini.read(gemini.head_of(capture.response_bytes))
            media_type, status = message.media_type, message.status
        line = cdxj.line(
            place,
            url=capture.url,
            date=records.warc_date(capture.started),
            mime=cdxj.REVISIT if composed.revisit else media_type,
            status=status,
            digest=composed.payload,
        )
        if (query := query_of(capture.request_bytes)) is not None:
            line = cdxj.line_of_request(line, capture.url, query)
        self._add_line(line)
        self.stats.records += 2 + bool(capture.certificate)
        self.stats.revisits += composed.revisit
        return place

    def note(self, note: FetchNote) -> None:
        """Write the metadata record of a note. Raises the errors of `append`."""
        self._append_one(lambda: self._maker.metadata(note, self._ids.new()))

    def resource(self, resource: Resource) -> None:
        """Write a resource record. Raises the errors of `append`."""
        place = self._append_one(lambda: self._maker.resource(resource, self._ids.new()))
        self._add_resource(place, resource)

    def begin_with(self, resource: Resource) -> None:
        """Write a resource record. If no file is open, the next one gets it, unless another one
        with its URI follows before; none is begun for it. Raises the errors of `append`.
        """
        if self._file is None:
            self._waiting[resource.url] = resource
        else:
            self.resource(resource)

    def _add_resource(self, place: Location, resource: Resource) -> None:
        line = cdxj.line(
            place,
            url=resource.url,
            date=records.warc_date(resource.started),
            mime=resource.media_type,
            status="",
            digest=digest(resource.block, self._options.digest),
        )
        self._add_line(line)

    @property
    def open_lines(self) -> list[str]:
        """The index lines of the open file, or of the last one, in the order of their records. More
        are appended; the next file has another list."""
        return self._lines

    def lines_with(self, beginning: str) -> list[str]:
        """Return the index lines of the open file that start with ``beginning``, in any thread."""
        return [line for line in self._lines.copy() if line.startswith(beginning)]

    def _add_line(self, line: str) -> None:
        self._lines.append(line)
        self._lines_size += len(line)

    def _append_one(self, make: Callable[[], bytes]) -> Location:
        file = self._ready()
        try:
            member = self._compress(make())
        except ValueError as error:
            raise CaptureRefused(str(error)) from error
        place = self._write(file, member)
        self.stats.records += 1
        return place

    def _write(self, file: OpenFile, member: bytes, more: bytes = b"") -> Location:
        place = file.append(member, more)
        self.stats.bytes_written += len(member) + len(more)
        return place

    def sync(self) -> Synced | None:
        """Make all appended records durable, then close the open file if it has reached its age.

        Return what of the open file is durable; None if no file is open.

        :raises ArchiveError: the records could not be made durable
        :raises OSError: the file could not be closed, for example on a full disk
        """
        if self._file is not None:
            self._file.sync()
            self._composer.synced()
            if self._is_old(self._file):
                self.close()
        if self._file is None:
            return None
        return Synced(self._file.final.name, self._file.size, self.stats.records - self._before)

    def close(self) -> None:
        """Make the open file durable, write its index and rename the file to its final name.

        Does nothing when no file is open.

        :raises OSError: the index or the name could not be written; the file is still open
        :raises ArchiveError: the content or the name could not be made durable
        """
        if self._file is None:
            return
        self._file.sync()
        self._composer.synced()
        # The index comes before the final name, so every finished file has one.
        starts = range(0, len(self._lines), _SORTED_AT_ONCE)
        runs = [sorted(self._lines[at : at + _SORTED_AT_ONCE]) for at in starts]
        cdxj.write_index(self._file.final, merge(*runs))
        self._file.finish()
        self._file = None

    def abandon(self) -> None:
        """Close the descriptor; mending finishes a file that has no final name yet."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _is_old(self, file: OpenFile) -> bool:
        return time.monotonic() - file.begun >= self._options.max_age

    def _ready(self) -> OpenFile:
        """Return the open file; end a full or old one and begin the next."""
        file = self._file
        if file is not None:
            full = file.size >= self._options.max_size or self._lines_size >= INDEX_MAX
            if not full and not self._is_old(file):
                return file
            self.close()
        return self._begin()

    def _begin(self) -> OpenFile:
        """Begin a file. Its first records are composed before it is made: if that fails, no file
        is left."""
        info, waiting, path = self._ids.new(), [*self._waiting.values()], self._next_path()
        maker = records.RecordMaker(info, self._options.digest)
        date = records.warc_date(time.time())
        first = self._compress(maker.warcinfo(self._info_block, date=date, filename=path.name))
        others = [self._compress(maker.resource(each, self._ids.new())) for each in waiting]
        file = OpenFile(path)
        try:
            self._write(file, first, b"".join(others))
        except OSError:
            # Every file begins with its warcinfo record, so remove one that has none.
            file.remove()
            raise
        self._file, self._maker = file, maker
        self._lines, self._lines_size = [], 0
        if self._payloads is not None:
            self._payloads.note_file(path.name)
        self._before = self.stats.records
        self.stats.records += 1
        self.stats.files += 1
        at = len(first)
        for resource, record in zip(waiting, others, strict=True):
            self._add_resource(Location(path.name, at, len(record)), resource)
            at += len(record)
            self.stats.records += 1
        self._waiting.clear()
        return file

    def _next_path(self) -> Path:
        """Return the path of the next file; skip names of finished or open files."""
        stamp, options = time.strftime("%Y%m%d%H%M%S", time.gmtime()), self._options
        while True:
            serial, self._serial = self._serial, self._serial + 1
            name = (
                f"{options.prefix}-{stamp}-{serial:05d}-{self._hostname}-{os.getpid()}{cdxj.WARC}"
            )
            path = self._directory / name
            if not (path.exists() or path.with_name(name + OPEN).exists()):
                return path
