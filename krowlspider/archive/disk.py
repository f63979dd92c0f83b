"""The archive's errors, and durable changes of a folder, with its lock."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class ArchiveError(Exception):
    """The archive has failed for good: no page may be acknowledged after this."""


class CaptureRefused(ValueError):
    """One capture cannot be a WARC record. Nothing of it was written; others are not affected."""


class RecordError(ValueError):
    """An archive file is damaged: the gzip member at ``offset`` is cut off, or no valid record."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"at byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class CutOffError(RecordError):
    """The gzip member at ``offset`` is whole as far as it goes, but the file ends within it."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset, "the gzip member is cut off")


LOCK = ".krowlspider.lock"  # locked by the process that writes to a folder
OPEN = ".open"  # the suffix of a WARC file that is being written, or was when its process died
DAMAGED = ".damaged"  # the suffix of an open file that is kept because it is damaged
_DRAFT = ".new"


def sync_directory(directory: Path) -> None:
    """Make the names in ``directory`` durable: an fsync of a file does not cover its name."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Make ``directory`` and its missing parents, durably."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    sync_directory(directory.parent)


def finish(path: Path) -> Path:
    """Rename an open file, whose content is durable, to its final name durably; return that.

    :raises FileExistsError: the name is taken; a finished file is never overwritten
    :raises ArchiveError: the file has its final name, but the name may not be durable
    """
    final = path.with_name(path.name.removesuffix(OPEN))
    if final.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final))
    path.rename(final)
    try:
        sync_directory(final.parent)
    except OSError as error:
        raise ArchiveError(f"{final} cannot be made durable: {error}") from error
    return final


@contextmanager
def write_durably(path: Path) -> Iterator[BinaryIO]:
    """Yield a draft of the file ``path`` to write; on exit replace ``path`` by it durably.

    An error leaves ``path`` as it was, so it never holds half a file.

    :raises OSError: the file or its name could not be made durable
    """
    # Two processes may write the same file: each has its own draft.
    draft = path.with_name(f"{path.name}.{os.getpid()}{_DRAFT}")
    try:
        with draft.open("wb") as file:
            # Locked until it has its name: an unlocked draft is that of a dead process.
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
            file.flush()
            os.fsync(file.fileno())
            draft.rename(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def is_draft(path: Path, name: str) -> bool:
    """Return whether ``path`` is a draft of a file ``name``."""
    return path.name.startswith(f"{name}.") and path.name.endswith(_DRAFT)


def remove_drafts(directory: Path, suffix: str) -> None:
    """Remove the drafts of files ending in ``suffix`` that dead processes left. Raises OSError."""
    for draft in directory.glob(f"*{suffix}.*{_DRAFT}"):
        with suppress(FileNotFoundError, BlockingIOError), draft.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink()


def lock_directory(directory: Path) -> int:
    """Lock a folder for this process and return a descriptor; closing it ends the lock.

    :raises ArchiveError: another process holds the lock
    :raises OSError: the folder cannot be written
    """
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise ArchiveError(f"another crawl writes to {directory}: give each its own") from error
    return descriptor


def is_locked(directory: Path) -> bool:
    """Return whether a process has locked a folder by `lock_directory`."""
    try:
        with (directory / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
