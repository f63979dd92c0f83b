"""What the store asks of the disk beside LevelDB: that logs are on it to stay."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from pathlib import Path

# How much of each log was on the disk to stay when it was last asked for. LevelDB takes a log that was cut for one whose
# last batch was being written.
_NOTE = "synced"
_NOTE_SIZE = 4096


def sync_logs(folder: Path) -> None:
    """Make every log of a LevelDB folder durable, and its name; note how long they are, for `cut_logs`.

    :raises OSError: the disk failed. Trying again proves nothing, even when it was for want of room: the kernel may
        have dropped what it could not write, and report success the next time.
    """
    sizes = {log.name: _sync(log) for log in _logs(folder)}
    _sync(folder)
    text = json.dumps(sizes).encode()
    # Should this not be written, the last note says less, and is no less true.
    with suppress(OSError):
        descriptor = os.open(folder / _NOTE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, (b"%08x %b" % (crc32(text), text)).ljust(_NOTE_SIZE), 0)
        finally:
            os.close(descriptor)


def _logs(folder: Path) -> list[Path]:
    # Among the thousand tables of a large frontier `Path.glob` takes 2 ms.
    names = [name for name in os.listdir(folder) if name.endswith(".log")]  # noqa: PTH208
    return [folder / name for name in names if name[0].isdigit()]


def _sync(path: Path) -> int:
    """Returns how long the file was before."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        # A log that LevelDB has deleted since: its content is in a synced table.
        return 0
    try:
        size = os.fstat(descriptor).st_size
        os.fsync(descriptor)
        return size
    finally:
        os.close(descriptor)


def cut_logs(folder: Path) -> dict[str, int]:
    """The bytes that are missing at the ends of logs, by log, that were on the disk to stay."""
    try:
        checksum, _, text = (folder / _NOTE).read_bytes().rstrip().partition(b" ")
        sizes: dict[str, int] = json.loads(text) if int(checksum, 16) == crc32(text) else {}
    except (FileNotFoundError, ValueError):
        # None yet, or power was lost before it was on the disk.
        return {}
    there = {log.name: log.stat().st_size for log in _logs(folder)}
    newest = max(map(_number, there), default=0)
    missing = {name: size - there.get(name, 0) for name, size in sizes.items()}
    # LevelDB deletes a log whose content is in a table when a newer one is there.
    return {
        name: size
        for name, size in missing.items()
        if size > 0 and (name in there or _number(name) > newest)
    }


def _number(log: str) -> int:
    return int(log.partition(".")[0])


def forget_sizes(folder: Path) -> None:
    """Logs that are shorter than they were are not cut."""
    (folder / _NOTE).unlink(missing_ok=True)
