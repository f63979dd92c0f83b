"""What the store asks of the disk beside LevelDB: that logs are on it to stay, and whether it has room."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from krowlspider.errors import lacks_room

if TYPE_CHECKING:
    from pathlib import Path

# LevelDB leaves files of other names alone.
_PROBE = "room.probe"
_CHUNK = 1024 * 1024


def sync_logs(folder: Path) -> None:
    """Make every log of a LevelDB folder durable, and its name.

    :raises OSError: the disk failed. Trying again proves nothing, even when it was for want of room: the kernel may
        have dropped what it could not write, and report success the next time.
    """
    for log in folder.glob("*.log"):
        _sync(log)
    _sync(folder)


def _sync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        # A log that LevelDB has deleted since: its content is in a synced table.
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def log_bytes(folder: Path) -> int:
    """The size of a LevelDB folder's logs, which become tables when it is opened."""
    size = 0
    for log in folder.glob("*.log"):
        with suppress(FileNotFoundError):
            # LevelDB may have deleted it since.
            size += log.stat().st_size
    return size


def has_room(folder: Path, size: int) -> bool:
    """Whether ``size`` more bytes can be written to a folder's disk; blocks while they are.

    They are written for real: file systems differ in what they count as free, for whom, and up to which quota.

    :raises OSError: the disk failed in another way
    """
    chunk = os.urandom(_CHUNK)
    try:
        with (folder / _PROBE).open("wb") as file:
            for written in range(0, size, _CHUNK):
                file.write(chunk[: size - written])
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if lacks_room(error):
            return False
        raise
    finally:
        remove_probe(folder)
    return True


def remove_probe(folder: Path) -> None:
    """Remove what a process that was killed may have left of `has_room`."""
    (folder / _PROBE).unlink(missing_ok=True)
