"""The temporary folders of queries. A later query removes what a killed one has left."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PREFIX = "krowlspider-sql-"
# Seconds in which a process locks the folder that it has made.
_NEW = 60.0


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a new folder, which is locked, and removed at the end. Raises OSError."""
    remove_left()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as made:
        lock = os.open(made, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(made)
        finally:
            os.close(lock)


def remove_left(wall: Callable[[], float] = time.time) -> None:
    """Remove the folders of this user whose process is gone. What cannot be removed stays. ``wall``
    returns epoch seconds."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            _remove_if_left(path, wall())


def _remove_if_left(path: Path, now: float) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(folder)
        is_private = found.st_uid == os.getuid() and not found.st_mode & (
            stat.S_IRWXG | stat.S_IRWXO
        )
        if not is_private or now - found.st_ctime < _NEW:
            return
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    finally:
        os.close(folder)
