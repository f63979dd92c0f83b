"""Durability of LevelDB's logs, which LevelDB does not ensure itself.

LevelDB syncs only the newest log, and accepts a log that was cut as if its last batch had not been
written to the end. So all logs are synced, and their sizes recorded.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from pathlib import Path

# The file of the sizes in the store's folder: checksum and JSON, padded.
_SIZES = "synced"
_SIZES_BYTES = 4096


def sync_logs(folder: Path) -> None:
    """Sync all logs of a LevelDB folder and their names, and record their sizes for `cut_logs`.

    :raises OSError: the disk failed or is full. Do not try again: the kernel may have dropped what
        it could not write, and would report success.
    """
    sizes = {log.name: sync(log) for log in _logs(folder)}
    sync(folder)
    text = json.dumps(sizes).encode()
    # If this fails, the earlier sizes stay. They are smaller, and still true.
    with suppress(OSError):
        descriptor = os.open(folder / _SIZES, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, (b"%08x %b" % (crc32(text), text)).ljust(_SIZES_BYTES), 0)
        finally:
            os.close(descriptor)


def cut_logs(folder: Path) -> dict[str, int]:
    """Return by log how many bytes are missing at its end that were durable."""
    try:
        checksum, _, text = (folder / _SIZES).read_bytes().rstrip().partition(b" ")
        durable: dict[str, int] = json.loads(text) if int(checksum, 16) == crc32(text) else {}
    except (FileNotFoundError, ValueError):
        # Never written, or torn by a power loss.
        return {}
    sizes = {log.name: log.stat().st_size for log in _logs(folder)}
    newest = max(map(_number, sizes), default=0)
    # A log that is gone is in a table if LevelDB has begun a newer one.
    return {
        name: size - sizes.get(name, 0)
        for name, size in durable.items()
        if size > sizes.get(name, 0) and (name in sizes or _number(name) > newest)
    }


def forget_sizes(folder: Path) -> None:
    """Remove the recorded sizes: shorter logs no longer count as cut."""
    (folder / _SIZES).unlink(missing_ok=True)


def sync(path: Path) -> int:
    """Sync a file or folder, and return the size that is durable now; 0 if it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        # LevelDB deletes a log once its content is in a synced table.
        return 0
    try:
        size = os.fstat(descriptor).st_size
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return size


def _logs(folder: Path) -> list[Path]:
    return list(folder.glob("[0-9]*.log"))


def _number(log: str) -> int:
    return int(log.partition(".")[0])
