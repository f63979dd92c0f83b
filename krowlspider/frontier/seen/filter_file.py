"""The saved seen filter: one file with a checksum, replaced as a whole."""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from operator import index
from typing import TYPE_CHECKING

from msgspec import Struct
from rbloom import Bloom

from krowlspider.frontier.store.disk import sync

if TYPE_CHECKING:
    from pathlib import Path

_VERSION = 2


class Snapshot(Struct, frozen=True, eq=False):
    """The state of a seen filter at one moment.

    - ``sequence``: that of the last batch of new keys in it.
    - ``capacity``: keys of the first layer. ``count``: keys in all layers. ``room``: keys that the
      newest layer can still take.
    - ``full``: the older layers, oldest first. ``newest``: the bytes of the newest layer.
      `operator.index` is their hash function: the keys are seeded digests.
    """

    sequence: int
    capacity: int
    count: int
    room: int
    full: list[Bloom]
    newest: bytes


class FilterFile:
    """A file that holds one snapshot.

    The first line has a checksum and a JSON object, in which are the sizes and checksums of the
    layers that follow. A file that is damaged, cut or of another version counts as missing.
    """

    def __init__(self, path: Path):
        self.path = path

    def write(self, snapshot: Snapshot) -> None:
        """Replace the file. A crash or a full disk leaves either the old file or the new one.

        :raises OSError: the file cannot be written
        """
        layers = [*(layer.save_bytes() for layer in snapshot.full), snapshot.newest]
        head = {
            "version": _VERSION,
            "mark": snapshot.sequence,
            "capacity": snapshot.capacity,
            "count": snapshot.count,
            "room": snapshot.room,
            "sizes": [len(layer) for layer in layers],
            "blake2b": [_checksum(layer) for layer in layers],
        }
        line = json.dumps(head).encode()
        draft = self.path.with_name(self.path.name + ".new")
        try:
            with draft.open("wb") as file:
                file.writelines([b"%b %b\n" % (_checksum(line).encode(), line), *layers])
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            # The draft would take room on the disk that other writes need.
            draft.unlink(missing_ok=True)
            raise
        draft.replace(self.path)
        sync(self.path.parent)

    def read(self) -> Snapshot | None:
        """Return the snapshot; None without one."""
        try:
            with self.path.open("rb") as file:
                checksum, _, line = file.readline().rstrip(b"\n").partition(b" ")
                head = json.loads(line) if _checksum(line).encode() == checksum else {}
                layers = [file.read(size) for size in head["sizes"]]
            if head["version"] != _VERSION or [*map(_checksum, layers)] != head["blake2b"]:
                return None
            return Snapshot(
                sequence=head["mark"],
                capacity=head["capacity"],
                count=head["count"],
                room=head["room"],
                full=[Bloom.load_bytes(layer, index) for layer in layers[:-1]],
                newest=layers[-1],
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def remove(self) -> None:
        """Remove the file durably, so that the next start rebuilds the filter."""
        self.path.unlink(missing_ok=True)
        sync(self.path.parent)


def _checksum(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
