"""Copy a LevelDB folder that is open, as it is at one moment.

A table never changes once it is in the manifest. Manifest and logs only grow, so their first bytes
are what they were. While no batch is written, the files belong together if the manifest has not
grown meanwhile: LevelDB's own thread, which merges tables, notes there first what it deletes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.frontier.store.disk import sync, sync_logs
from krowlspider.frontier.store.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from krowlspider.frontier.store.store import LevelStore

_CURRENT = "CURRENT"
_TABLES = (".ldb", ".sst")
# Writes wait for so few tables at most; all others are taken before.
_LAST_TABLES = 32
# LevelDB changes the manifest some times a second at most, and a try takes milliseconds.
_TRIES = 100


class LevelCopy:
    """A copy of the folder of a store in ``target``, which is made.

    ``take`` links or copies a file that never changes, ``copy`` the first bytes of an open one.

    :raises OSError: a file cannot be copied
    """

    def __init__(
        self,
        store: LevelStore,
        target: Path,
        take: Callable[[Path, Path], None],
        copy: Callable[[BinaryIO, Path, int], None],
    ):
        self._store = store
        self._source = store.folder
        self._target = target
        self._take = take
        self._copy = copy
        self._manifest = self._source / (self._source / _CURRENT).read_text().strip()
        # Manifest and logs, with the sizes that they had when no batch was written.
        self._growing: list[tuple[BinaryIO, str, int]] = []
        self._tables: set[str] = set()
        target.mkdir()

    def gather(self) -> None:
        """Take the tables, until few are new. Writes go on."""
        while self._take_tables() > _LAST_TABLES:
            pass

    def fix(self) -> None:
        """Take what is left. Writes wait meanwhile, for some milliseconds.

        :raises StoreError: the store has failed
        """
        for _ in range(_TRIES):
            with self._store.at_rest():
                if self._fix():
                    return
            self.close()
            self.gather()
        raise StoreError(f"LevelDB in {self._source} never stops merging tables: try again later")

    def complete(self) -> None:
        """Copy manifest and logs as they were at `fix`, and make the copy durable."""
        for file, name, size in self._growing:
            self._copy(file, self._target / name, size)
        self.close()
        (self._target / _CURRENT).write_text(f"{self._manifest.name}\n")
        sync(self._target / _CURRENT)
        for path in self._target.iterdir():
            if path.suffix in _TABLES and path.name not in self._tables:
                path.unlink()
        sync_logs(self._target)

    def close(self) -> None:
        for file, *_ in self._growing:
            file.close()
        self._growing = []

    def _fix(self) -> bool:
        before = self._manifest.stat().st_size
        self._take_tables()
        for path in (self._manifest, *self._source.glob("[0-9]*.log")):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                return False
            self._growing.append((file, path.name, os.fstat(file.fileno()).st_size))
        return self._manifest.stat().st_size == before

    def _take_tables(self) -> int:
        """Take the tables that are new, and return their number."""
        self._tables = {path.name for path in self._source.iterdir() if path.suffix in _TABLES}
        count = 0
        for name in self._tables:
            if not (self._target / name).exists():
                count += 1
                try:
                    self._take(self._source / name, self._target / name)
                except FileNotFoundError:
                    # Merged meanwhile: the manifest has grown.
                    continue
        return count
