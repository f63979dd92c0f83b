"""The WARC file that is being written, and the compression of its records to gzip members.

Calls of `OpenFile` block on the disk.
"""

from __future__ import annotations

import os
import re
import time
from functools import partial
from typing import TYPE_CHECKING

from isal import isal_zlib
from zlib_ng import zlib_ng

from krowlspider.archive.disk import OPEN, finish, sync_directory
from krowlspider.archive.errors import ArchiveError
from krowlspider.archive.reading import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

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
