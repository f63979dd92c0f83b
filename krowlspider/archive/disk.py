"""Change a directory durably, and lock it for one process."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

from krowlspider.archive.errors import ArchiveError

if TYPE_CHECKING:
    from pathlib import Path

# The file that the process that writes to a folder locks.
LOCK = ".krowlspider.lock"
# The suffix of a file that is being written, or was when its process died.
OPEN = ".open"


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


def finish_name(path: Path) -> Path:
    """Return the final name of the open file ``path``.

    :raises ValueError: ``path`` is not the name of an open file
    """
    if path.suffix != OPEN:
        raise ValueError(f"not the name of an open file: {path}")
    return path.with_suffix("")


def finish(path: Path) -> Path:
    """Rename an open file durably to its final name and return that.

    The content must be durable already.

    :raises FileExistsError: the name is taken; a finished file is never overwritten
    :raises ArchiveError: the file has its final name, but the name may not be durable
    """
    final = finish_name(path)
    if final.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final))
    path.rename(final)
    try:
        sync_directory(final.parent)
    except OSError as error:
        raise ArchiveError(f"{final} cannot be made durable: {error}") from error
    return final


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
