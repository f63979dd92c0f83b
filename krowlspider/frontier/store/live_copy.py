"""Copy a LevelDB folder that is open, as it is at one moment.

A table never changes once it is in the manifest, and one that is not may be half written: LevelDB
writes it anew if it dies. Manifest and logs only grow, so their first bytes are what they were.
While no batch is written, the files belong together if the manifest has not grown meanwhile:
LevelDB's own thread, which merges tables, notes there first what it deletes.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.frontier.store.disk import sync, sync_logs
from krowlspider.frontier.store.manifest import Manifest
from krowlspider.frontier.store.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from krowlspider.frontier.store.store import LevelStore

_CURRENT = "CURRENT"
# LevelDB changes the manifest some times a second at most, and a try takes milliseconds.
_TRIES = 100


class LevelCopy:
    """A copy of the folder of a store in ``target``, which is made.

    ``take`` links or copies a file that never changes; ``link`` links it, and returns False where
    that cannot be. ``copy`` copies the first bytes of an open file, None for all.

    :raises OSError: a file cannot be copied
    :raises StoreError: the manifest is of an unknown format
    """

    def __init__(
        self,
        store: LevelStore,
        target: Path,
        take: Callable[[Path, Path], None],
        link: Callable[[Path, Path], bool],
        copy: Callable[[BinaryIO, Path, int | None], None],
    ):
        self._store = store
        self._source = store.folder
        self._target = target
        self._take = take
        self._link = link
        self._copy = copy
        self._files = ExitStack()
        name = (self._source / _CURRENT).read_text().strip()
        self._manifest = Manifest(self._files.enter_context((self._source / name).open("rb")))
        self._manifest_name = name
        # Tables by number that were taken, and those that `fix` could only open.
        self._taken: set[int] = set()
        self._opened: dict[int, BinaryIO] = {}
        # The logs, with the sizes that they had when no batch was written.
        self._logs: list[tuple[BinaryIO, str, int]] = []
        target.mkdir()

    def gather(self) -> None:
        """Take the tables that there are. Writes go on."""
        for number in self._new_tables():
            try:
                self._take(self._table(number), self._target / self._table(number).name)
            except FileNotFoundError:
                # Merged meanwhile.
                continue
            self._taken.add(number)

    def fix(self) -> None:
        """Take what is left. Writes wait meanwhile, for some milliseconds: files that cannot be
        linked are opened, and copied by `complete`.

        :raises StoreError: the store has failed
        """
        for _ in range(_TRIES):
            self.gather()
            with self._store.at_rest():
                if self._fix():
                    return
            self._close_fixed()
        raise StoreError(f"LevelDB in {self._source} never stops merging tables: try again later")

    def complete(self) -> int:
        """Copy what `fix` has opened, as it was then, and make the copy durable. Return how many
        tables were among it."""
        late = len(self._opened)
        for number, file in self._opened.items():
            self._copy(file, self._target / self._table(number).name, None)
        for file, name, size in self._logs:
            self._copy(file, self._target / name, size)
        with (self._source / self._manifest_name).open("rb") as file:
            self._copy(file, self._target / self._manifest_name, self._manifest.size)
        for number in self._taken - self._manifest.tables:
            (self._target / self._table(number).name).unlink()
        self.close()
        (self._target / _CURRENT).write_text(f"{self._manifest_name}\n")
        sync(self._target / _CURRENT)
        sync_logs(self._target)
        return late

    def close(self) -> None:
        self._close_fixed()
        self._files.close()

    def _close_fixed(self) -> None:
        for file in (*self._opened.values(), *(file for file, *_ in self._logs)):
            file.close()
        self._opened = {}
        self._logs = []

    def _fix(self) -> bool:
        new = self._new_tables()
        before = self._manifest.size
        try:
            for number in new:
                path = self._table(number)
                if self._link(path, self._target / path.name):
                    self._taken.add(number)
                else:
                    self._opened[number] = path.open("rb")
            for path in self._source.glob("[0-9]*.log"):
                file = path.open("rb")
                self._logs.append((file, path.name, os.fstat(file.fileno()).st_size))
        except FileNotFoundError:
            # Merged meanwhile: the manifest has grown.
            return False
        return (self._source / self._manifest_name).stat().st_size == before

    def _new_tables(self) -> set[int]:
        try:
            self._manifest.read()
        except (ValueError, IndexError) as error:
            raise StoreError(f"{self._source / self._manifest_name}: {error}") from error
        return self._manifest.tables - self._taken

    def _table(self, number: int) -> Path:
        return self._source / f"{number:06d}.ldb"
