"""Link the files of a snapshot, or copy them where they cannot be linked."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.errors import JobError

if TYPE_CHECKING:
    from pathlib import Path

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
