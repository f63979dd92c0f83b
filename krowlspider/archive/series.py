"""A series of WARC files in one folder, of which at most one is open; blocks on the disk."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isal import isal_zlib

from krowlspider.archive import records
from krowlspider.archive.capture import Location
from krowlspider.archive.disk import OPEN, finish, sync_directory
from krowlspider.archive.errors import ArchiveError, CaptureRefused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from krowlspider.archive.capture import Capture

# No leading dot: neither a hidden file nor a parent folder. 200 of the 255 bytes that Linux allows
# a file name are left to prefix and hostname together.
_PREFIX = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_NAME_LENGTH = 200
_NOT_IN_HOSTNAME = re.compile(r"[^A-Za-z0-9._-]")
# isal's level 1: 0.05 ms and a ratio of 3.3 for a 39 KB page, where zlib's 6 takes 0.55 ms.
_LEVEL = 1
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_GZIP = 16 + isal_zlib.MAX_WBITS


@dataclass(slots=True)
class WriterStats:
    """What was written since the start: records (warcinfo among them), compressed bytes, bytes of
    payload, files begun."""

    records: int = 0
    bytes_written: int = 0
    bytes_payload: int = 0
    files: int = 0


class WarcSeries:
    """Appends captures, the records of each side by side, to files of about ``max_size``.

    ``max_size`` is in compressed bytes; a file ends with the capture that reaches it. The open file ends
    with a whole record also when a write has failed, so what failed with an OSError may be tried
    again. After an ArchiveError the series may only be abandoned.
    """

    def __init__(
        self, directory: Path, *, prefix: str, hostname: str, max_size: int, info: Mapping[str, str]
    ) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"a file prefix is of letters, digits, '.', '_', '-': {prefix!r}")
        if not hostname or len(prefix) + len(hostname) > _NAME_LENGTH:
            raise ValueError(f"no hostname, or too long for a file name: {hostname!r}, {prefix!r}")
        self._directory = directory
        self._prefix = prefix
        self._hostname = _NOT_IN_HOSTNAME.sub("-", hostname)
        self._max_size = max_size
        self._info_block = records.info_block({"hostname": self._hostname, **info})
        self._descriptor: int | None = None
        self._path = directory
        self._info_id = ""
        self._size = 0
        self._serial = 0
        self._content_durable = True
        self._name_durable = True
        self.stats = WriterStats()

    def append(self, capture: Capture) -> Location:
        """Write its records; durable after the next `sync`.

        Raises CaptureRefused or OSError, nothing of the capture being written.
        """
        if self._size >= self._max_size:
            self.close()
        descriptor = self._begin() if self._descriptor is None else self._descriptor
        try:
            response, *others = self._records(capture)
        except ValueError as error:
            raise CaptureRefused(str(error)) from error
        location = Location(self._path.stem, self._size, len(response))
        self._write(descriptor, b"".join([response, *others]))
        self.stats.records += 1 + len(others)
        self.stats.bytes_payload += len(capture.payload)
        return location

    def sync(self) -> None:
        """Make durable all that was appended.

        Raises ArchiveError, which is final whatever the disk said: an fsync tried again may report
        success over pages that the kernel has dropped.
        """
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
        """Make the open file durable and give it its final name. Raises OSError or ArchiveError."""
        if self._descriptor is None:
            return
        self.sync()
        # Let go of only then: without room for the name the file is still the open one.
        finish(self._path)
        self.abandon()
        self._size = 0

    def abandon(self) -> None:
        """Let go of the open file as it is; mending brings it to an end."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def _begin(self) -> int:
        descriptor = self._create(time.strftime("%Y%m%d%H%M%S", time.gmtime()))
        self._descriptor = descriptor
        self._name_durable = False
        self._size = 0
        self._info_id = records.record_id(os.urandom(16))
        date = records.warc_date(time.time())
        head = records.warcinfo(
            self._info_block, identity=self._info_id, date=date, filename=self._path.stem
        )
        try:
            self._write(descriptor, _compress(head))
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
            name = f"{self._prefix}-{stamp}-{serial:05d}-{self._hostname}-{os.getpid()}.warc.gz"
            if (self._directory / name).exists():
                continue
            self._path = self._directory / (name + OPEN)
            try:
                return os.open(self._path, _NEW_FILE, mode=0o644)
            except FileExistsError:
                continue

    def _records(self, capture: Capture) -> list[bytes]:
        """The response record and those that go with it, compressed."""
        date = records.warc_date(capture.started)
        identity = records.record_id(os.urandom(16))
        response = records.response(capture, identity=identity, date=date, info=self._info_id)
        others = (
            record(
                capture,
                identity=records.record_id(os.urandom(16)),
                date=date,
                info=self._info_id,
                concurrent=identity,
            )
            for record in (records.request, records.metadata)[: 1 + bool(capture.chain)]
        )
        return [_compress(record) for record in (response, *others)]

    def _write(self, descriptor: int, content: bytes) -> None:
        """Append to the open file all of ``content``, or nothing. Raises OSError or ArchiveError."""
        self._content_durable = False
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
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


def _compress(record: bytes) -> bytes:
    return isal_zlib.compress(record, _LEVEL, _GZIP)
