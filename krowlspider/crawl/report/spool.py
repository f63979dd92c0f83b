"""The rows of a long table, on disk: a report needs no memory for each seed."""

from __future__ import annotations

import json
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Row = tuple[str | int | float, ...]


class Spool:
    """Rows in a file without a name, in the order in which they were added.

    :raises OSError: the file cannot be made, written or read
    """

    def __init__(self, folder: Path | None = None):
        self._file = TemporaryFile("w+", dir=folder, encoding="utf-8")
        self._count = 0

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._file.write(json.dumps(row) + "\n")
            self._count += 1

    def close(self) -> None:
        """Forget the rows."""
        self._file.close()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        self._file.seek(0)
        for line in self._file:
            yield tuple(json.loads(line))
