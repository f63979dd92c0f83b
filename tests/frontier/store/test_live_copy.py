"""A copy of an open LevelDB is what it held at one moment."""

from __future__ import annotations

from contextlib import closing
from threading import Thread
from typing import TYPE_CHECKING

from krowlspider.crawl.snapshots.copier import Copier
from krowlspider.frontier.store.live_copy import LevelCopy
from krowlspider.frontier.store.store import LevelStore, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Disturbed(Copier):
    """Calls ``disturb`` before the first file is taken."""

    def __init__(self, disturb: Callable[[], None]):
        super().__init__()
        self._disturb = [disturb]

    def take(self, source: Path, target: Path) -> None:
        while self._disturb:
            self._disturb.pop()()
        super().take(source, target)


def filled(folder: Path) -> LevelStore:
    """Return a store with tables and a log."""
    store = LevelStore(folder, create=True)
    for number in range(3):
        put(store, b"%d" % number, b"table")
        store.compact(b"\0", b"\xff")
    put(store, b"9", b"log")
    return store


def copied(store: LevelStore, target: Path, copier: Copier) -> list[tuple[bytes, bytes]]:
    """Return what is in a copy, after the store has gone on."""
    copy = LevelCopy(store, target, copier.take, copier.copy)
    copy.fix()
    put(store, b"later", b"")
    copy.complete()
    with closing(LevelStore(target)) as opened:
        return list(opened.items(b""))


def test_a_copy_is_whole_though_tables_are_merged_meanwhile(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "store")) as store:
        before = list(store.items(b""))
        assert len({path.suffix for path in store.folder.iterdir()} & {".ldb", ".log"}) == 2
        merge = Disturbed(lambda: store.compact(b"\0", b"\xff"))
        assert copied(store, tmp_path / "copy", merge) == before


def test_a_write_waits_until_a_copy_is_fixed(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "store")) as store:
        before = list(store.items(b""))
        writer = Thread(target=put, args=(store, b"8", b"meanwhile"))

        def write() -> None:
            writer.start()
            writer.join(0.05)

        assert copied(store, tmp_path / "copy", Disturbed(write)) == before
        writer.join()
        assert store.get(b"8") == b"meanwhile"
