"""Crawls that are restored from one snapshot do not disturb each other."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from krowlspider.crawl.folder import SNAPSHOT
from krowlspider.crawl.snapshots.restoring import restore
from krowlspider.crawl.snapshots.taking import HEAD
from krowlspider.frontier.store.store import LevelStore, put

if TYPE_CHECKING:
    from pathlib import Path


def test_two_crawls_of_a_snapshot_with_half_tables_stay_whole(tmp_path: Path) -> None:
    """LevelDB writes another table under the number of a half one, into the same file."""
    snapshot = tmp_path / "taken"
    snapshot.mkdir()
    for name in (SNAPSHOT, HEAD):
        (snapshot / name).write_text("{}")
    with closing(LevelStore(snapshot / "frontier", create=True)) as store:
        put(store, b"a", b"table")
        store.flush()
        store.flush()
        put(store, b"b", b"log")
        before = list(store.items(b""))
    (log,) = (int(path.stem) for path in (snapshot / "frontier").glob("*.log"))
    for number in range(log + 1, log + 9):
        (snapshot / "frontier" / f"{number:06d}.ldb").write_bytes(b"half")
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        assert restore(snapshot, folder).linked == 1
    one, two = (LevelStore(folder / "frontier") for folder in folders)
    with closing(one), closing(two):
        for store, key in ((one, b"c"), (two, b"d")):
            put(store, key, b"")
            store.flush()
        for store, key in ((one, b"c"), (two, b"d")):
            assert list(store.items(b"")) == [*before, (key, b"")]
    tables = [{*(path.stat().st_ino for path in folder.rglob("*.ldb"))} for folder in folders]
    assert len(tables[0] & tables[1]) == 1
