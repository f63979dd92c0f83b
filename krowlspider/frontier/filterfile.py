"""The saved seen filter: one file with a checksum, replaced as a whole."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from rbloom import Bloom

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_VERSION = 2


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A filter at one moment. ``mark`` is the sequence of the last batch of new keys that is in it, ``room`` how
    many keys the newest layer still takes; ``newest`` is that layer's bytes."""

    mark: int
    capacity: int
    count: int
    room: int
    full: list[Bloom]
    newest: bytes


class FilterFile:
    """A file that holds a snapshot: a line with a checksum and JSON, then the layers' bytes, whose checksums are in it.

    What is damaged, cut or of another version is not there.
    """

    def __init__(self, path: Path):
        self.path = path

    def write(self, snapshot: Snapshot) -> None:
        """Replace the file; a crash leaves the old one or the new one, and so does a full disk.

        :raises OSError: it cannot be written
        """
        layers = [*(layer.save_bytes() for layer in snapshot.full), snapshot.newest]
        head = {
            "version": _VERSION,
            "mark": snapshot.mark,
            "capacity": snapshot.capacity,
            "count": snapshot.count,
            "room": snapshot.room,
            "sizes": [len(layer) for layer in layers],
            "blake2b": [_checksum(layer) for layer in layers],
        }
        draft = self.path.with_name(self.path.name + ".new")
        try:
            with draft.open("wb") as file:
                line = json.dumps(head).encode()
                file.write(b"%b %b\n" % (_checksum(line).encode(), line))
                for layer in layers:
                    file.write(layer)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            # It would take room that others wait for.
            draft.unlink(missing_ok=True)
            raise
        draft.replace(self.path)
        self._sync_folder()

    def read(self, hash_key: Callable[[int], int]) -> Snapshot | None:
        """The snapshot, or None when there is no whole one."""
        try:
            with self.path.open("rb") as file:
                checksum, _, line = file.readline().rstrip(b"\n").partition(b" ")
                if _checksum(line).encode() != checksum:
                    return None
                head = json.loads(line)
                layers = [file.read(size) for size in head["sizes"]]
            if head["version"] != _VERSION or [*map(_checksum, layers)] != head["blake2b"]:
                return None
            return Snapshot(
                head["mark"],
                head["capacity"],
                head["count"],
                head["room"],
                [Bloom.load_bytes(layer, hash_key) for layer in layers[:-1]],
                layers[-1],
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def remove(self) -> None:
        """The next start rebuilds the filter."""
        self.path.unlink(missing_ok=True)
        self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _checksum(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
