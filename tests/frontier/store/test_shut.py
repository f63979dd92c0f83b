"""A store that is shut and opened again goes on for all that use it; its files can be held."""

from __future__ import annotations

import errno
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import plyvel
import pytest

from krowlspider.frontier.store.disk import hold
from krowlspider.frontier.store.store import LevelStore, StoreError, put

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LevelStore]:
    with closing(LevelStore(tmp_path / "store", create=True)) as store:
        for number in range(9):
            put(store, b"a%d\0x" % number, b"table")
        store.flush()
        store.flush()
        yield store


def held(store: LevelStore, target: Path) -> Path:
    """Hold the files of a store, which goes on."""
    store.shut()
    hold(store.folder, target)
    store.reopen()
    return target


def contents(folder: Path) -> list[tuple[bytes, bytes]]:
    with closing(LevelStore(folder)) as store:
        return list(store.items(b""))


def test_held_files_are_the_store_as_it_was(store: LevelStore, tmp_path: Path) -> None:
    put(store, b"b", b"log")
    before = list(store.items(b""))
    target = held(store, tmp_path / "held")
    put(store, b"c", b"later")
    store.compact(b"\0", b"\xff")
    assert contents(target) == before
    assert list(store.items(b"")) == [*before, (b"c", b"later")]


def test_tables_are_links_and_half_tables_are_not(store: LevelStore, tmp_path: Path) -> None:
    """LevelDB writes another table under the number of a half one, into the same file."""
    put(store, b"b", b"log")
    before = list(store.items(b""))
    (log,) = (int(path.stem) for path in store.folder.glob("*.log"))
    for number in range(log + 1, log + 9):
        (store.folder / f"{number:06d}.ldb").write_bytes(b"half")
    target = held(store, tmp_path / "held")
    put(store, b"c", b"later")
    store.flush()
    later = list(store.items(b""))
    shared = [path for path in target.iterdir() if path.stat().st_nlink > 1]
    assert shared
    assert all(path.suffix == ".ldb" and int(path.stem) < log for path in shared)
    with closing(LevelStore(target)) as copy:
        put(copy, b"d", b"copy")
        copy.compact(b"\0", b"\xff")
        assert list(copy.items(b"")) == [*before, (b"d", b"copy")]
    store.shut()
    store.reopen()
    assert list(store.items(b"")) == later


def test_files_that_cannot_be_linked_are_copied(
    store: LevelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EMLINK, "too many links")

    before = list(store.items(b""))
    monkeypatch.setattr(Path, "hardlink_to", refused)
    target = held(store, tmp_path / "held")
    assert {path.stat().st_nlink for path in target.iterdir()} == {1}
    assert contents(target) == before


def test_ranges_go_on_behind_a_store_that_was_shut(store: LevelStore) -> None:
    whole = list(store.items(b""))
    for read, expected in (
        (store.items(b""), whole),
        (store.keys(b"a"), [key for key, _ in whole]),
        (store.firsts(b"a"), whole),
    ):
        first = next(read)
        store.shut()
        store.reopen()
        assert [first, *read] == expected  # type: ignore[list-item]


def test_all_uses_wait_until_the_store_is_open_again(store: LevelStore) -> None:
    found: list[object] = []
    uses = [
        lambda: found.append(store.get(b"a1\0x")),
        lambda: put(store, b"z", b""),
        lambda: found.append(len(list(store.items(b"a")))),
    ]
    store.shut()
    threads = [Thread(target=use) for use in uses]
    for thread in threads:
        thread.start()
        thread.join(0.02)
        assert thread.is_alive()
    assert found == []
    store.reopen()
    for thread in threads:
        thread.join()
    assert sorted(map(str, found)) == ["9", "b'table'"]
    assert store.get(b"z") == b""


def test_a_store_that_cannot_be_opened_again_says_why(
    store: LevelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is lost."""
    before = list(store.items(b""))

    def failing(*_: object, **__: object) -> None:
        raise plyvel.IOError(b"IO error: No space left on device")

    store.shut()
    with monkeypatch.context() as patched:
        patched.setattr(plyvel, "DB", failing)
        with pytest.raises(StoreError, match="no room"):
            store.reopen()
    for use in (
        lambda: store.get(b"a"),
        lambda: put(store, b"a", b""),
        lambda: next(store.items(b"")),
    ):
        with pytest.raises(StoreError, match="no room"):
            use()
    store.close()
    assert contents(store.folder) == before
