"""A copy of an open LevelDB is what it held at one moment."""

from __future__ import annotations

from contextlib import closing, contextmanager
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.store.leveldb import LevelCopy, Manifest
from krowlspider.frontier.store.store import LevelStore, put
from krowlspider.job.snapshots import Copier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Disturbed(Copier):
    """Calls ``disturb`` before the next file is linked, once."""

    def __init__(self) -> None:
        super().__init__()
        self.disturb: Callable[[], None] | None = None

    def link(self, source: Path, target: Path) -> bool:
        disturb, self.disturb = self.disturb, None
        if disturb is not None:
            disturb()
        return super().link(source, target)


def filled(folder: Path) -> LevelStore:
    """Return a store with a table, and a log whose key is among those of the table: so the two are
    merged, and the table is removed."""
    store = LevelStore(folder, create=True)
    put(store, b"1", b"table")
    put(store, b"9", b"table")
    store.compact(b"\0", b"\xff")
    put(store, b"5", b"log")
    return store


def copied(
    store: LevelStore, target: Path, copier: Copier, at_rest: Callable[[], None] = lambda: None
) -> list[tuple[bytes, bytes]]:
    """Return what is in a copy, after the store has gone on. ``at_rest`` is called each time when
    writes wait."""
    rest = store.at_rest

    @contextmanager
    def resting() -> Iterator[None]:
        with rest():
            at_rest()
            yield

    store.at_rest = resting  # type: ignore[method-assign]
    copy = LevelCopy(store, target, copier.take, copier.link, copier.copy)
    copy.fix()
    put(store, b"later", b"")
    copy.complete()
    with (target / (target / "CURRENT").read_text().strip()).open("rb") as file:
        manifest = Manifest(file)
        manifest.read()
    # Those that were merged away are not kept.
    assert {int(path.stem) for path in target.glob("*.ldb")} == manifest.tables
    with closing(LevelStore(target)) as opened:
        return list(opened.items(b""))


def test_a_copy_is_whole_though_tables_are_merged_before(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "store")) as store:
        before = list(store.items(b""))
        assert len({path.suffix for path in store.folder.iterdir()} & {".ldb", ".log"}) == 2
        merge = Disturbed()
        merge.disturb = lambda: store.compact(b"\0", b"\xff")
        assert copied(store, tmp_path / "copy", merge) == before
        assert merge.disturb is None


@pytest.mark.parametrize("links", [True, False])
def test_a_copy_is_whole_though_tables_are_merged_while_writes_wait(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where files cannot be linked."""
    with closing(filled(tmp_path / "store")) as store:
        before = list(store.items(b""))
        copier = Disturbed()
        rests = []

        def at_rest() -> None:
            rests.append(1)
            if len(rests) == 1:
                # A table that was not there before; then it is merged away.
                store.compact(b"\0", b"\xff")
                copier.disturb = lambda: merged(store)

        if not links:
            monkeypatch.setattr(Copier, "link", lambda *_: False)
        assert copied(store, tmp_path / "copy", copier, at_rest) == before
        assert len(rests) == 2


def merged(store: LevelStore) -> None:
    """Merge the only table with what it has already."""
    # Past the lock, as LevelDB's own thread.
    store._db.put(b"5", b"log")
    store.compact(b"\0", b"\xff")


def test_a_log_that_becomes_a_table_while_writes_wait_is_not_lost(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "store")) as store:
        expected = [*store.items(b""), (b"95", b"late")]
        copier = Disturbed()
        rests = []

        def at_rest() -> None:
            rests.append(1)
            if len(rests) == 1:
                store.compact(b"\0", b"\xff")
                store._db.put(b"95", b"late")
                # LevelDB writes its buffer to a table, and removes the log.
                copier.disturb = lambda: store._db.compact_range(start=b"\xff", stop=b"\xff")

        assert copied(store, tmp_path / "copy", copier, at_rest) == expected
        assert len(rests) == 2


@pytest.mark.parametrize("links", [True, False])
def test_a_table_that_is_being_written_is_not_taken(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start of the copy would write it anew, and the original reads the same file."""
    if not links:
        monkeypatch.setattr(Copier, "link", lambda *_: False)
    with closing(filled(tmp_path / "store")) as store:
        before = list(store.items(b""))
        last = max(int(path.stem.rpartition("-")[2]) for path in store.folder.glob("*[0-9]*"))
        for number in range(last + 1, last + 4):
            (store.folder / f"{number:06d}.ldb").write_bytes(b"half")
        merge = partial(store.compact, b"\0", b"\xff")
        assert copied(store, tmp_path / "copy", Copier(), merge) == before
        sizes = {path.stat().st_size for path in (tmp_path / "copy").glob("*.ldb")}
        assert len(b"half") not in sizes


def test_a_write_waits_until_a_copy_is_fixed(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "store")) as store:
        before = list(store.items(b""))
        writer = Thread(target=put, args=(store, b"8", b"meanwhile"))

        def write() -> None:
            writer.start()
            writer.join(0.05)

        assert copied(store, tmp_path / "copy", Copier(), write) == before
        writer.join()
        assert store.get(b"8") == b"meanwhile"
