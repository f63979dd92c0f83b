"""Make new folders of files that are linked, or copied where they cannot be linked."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.disk import sync_directory
from krowlspider.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterator

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
