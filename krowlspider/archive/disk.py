"""Changes of a directory that are durable when the call returns."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

from krowlspider.archive.errors import ArchiveError

if TYPE_CHECKING:
    from pathlib import Path

# Held by the process that writes to a folder.
LOCK = ".krowlspider.lock"
# The mark of a file that is still written, or was when its process died.
OPEN = ".open"


def sync_directory(directory: Path) -> None:
    """Make the names in ``directory`` durable: fsync of a file does not cover its name."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Make ``directory`` and its parents where they are missing, durably."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    sync_directory(directory.parent)


def finish_name(path: Path) -> Path:
    """The final name of the open file ``path``. Raises ValueError when it is not an open one."""
    if path.suffix != OPEN:
        raise ValueError(f"not the name of an open file: {path}")
    return path.with_suffix("")


def finish(path: Path) -> Path:
    """Give an open file, its content durable already, its final name, durably; return that.

    Raises FileExistsError when the name is taken: a finished file is never written over. ArchiveError when it has the
    name, but perhaps not to stay.
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
    """Hold a folder for this process alone, until the returned descriptor is closed.

    Raises ArchiveError when another process holds it, OSError when it cannot be written.
    """
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise ArchiveError(f"another crawl writes to {directory}: give each its own") from error
    return descriptor
