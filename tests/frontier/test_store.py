"""One contract for every store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.frontier.store import LevelStore, MemoryStore, Store, StoreError

if TYPE_CHECKING:
    from pathlib import Path

OpenStore = Callable[[], Store]


def put(store: Store, *pairs: tuple[bytes, bytes], sync: bool = False) -> None:
    batch = store.batch(sync=sync)
    for key, value in pairs:
        batch.put(key, value)
    batch.write()


@pytest.mark.parametrize("sync", [False, True])
def test_a_batch_is_there_once_written_and_not_before(open_store: OpenStore, sync: bool) -> None:
    store = open_store()
    batch = store.batch(sync=sync)
    batch.put(b"a", b"1")
    batch.put(b"b", b"2")
    assert store.get(b"a") is None
    batch.write()
    assert (store.get(b"a"), store.get(b"b")) == (b"1", b"2")


def test_the_last_change_of_a_key_in_a_batch_wins(open_store: OpenStore) -> None:
    store = open_store()
    batch = store.batch()
    batch.put(b"a", b"1")
    batch.delete(b"a")
    batch.put(b"b", b"1")
    batch.delete(b"c")
    batch.put(b"b", b"2")
    batch.write()
    assert list(store.items(b"")) == [(b"b", b"2")]


def test_items_and_keys_come_in_byte_order_and_only_of_the_prefix(open_store: OpenStore) -> None:
    store = open_store()
    put(store, (b"b\xff", b"4"), (b"a", b"1"), (b"b", b"2"), (b"b\x00", b"3"), (b"c", b"5"))
    assert list(store.items(b"b")) == [(b"b", b"2"), (b"b\x00", b"3"), (b"b\xff", b"4")]
    assert list(store.keys(b"b")) == [b"b", b"b\x00", b"b\xff"]


def test_a_store_keeps_its_content_when_closed_and_opened(open_store: OpenStore) -> None:
    store = open_store()
    put(store, (b"a", b"1"))
    store.close()
    assert open_store().get(b"a") == b"1"


def test_writes_during_an_iteration_do_not_show_in_it(open_store: OpenStore) -> None:
    store = open_store()
    put(store, (b"a", b"1"), (b"c", b"3"))
    found = []
    for key, _ in store.items(b""):
        found.append(key)
        put(store, (b"b", b"2"))
    assert found == [b"a", b"c"]


def test_a_folder_open_elsewhere_is_refused_with_its_name(tmp_path: Path) -> None:
    store = LevelStore(tmp_path / "db", create=True)
    try:
        with pytest.raises(StoreError, match="db"):
            LevelStore(tmp_path / "db")
    finally:
        store.close()


def test_a_damaged_folder_is_refused_with_its_name(tmp_path: Path) -> None:
    store = LevelStore(tmp_path / "db", create=True)
    put(store, (b"a", b"1"))
    store.close()
    (tmp_path / "db" / "CURRENT").write_bytes(b"nonsense")
    with pytest.raises(StoreError, match="db"):
        LevelStore(tmp_path / "db")


def test_a_folder_that_is_missing_or_has_lost_its_current_file_is_not_made_anew(
    tmp_path: Path,
) -> None:
    with pytest.raises(StoreError, match="db"):
        LevelStore(tmp_path / "db")
    store = LevelStore(tmp_path / "db", create=True)
    put(store, (b"a", b"1"))
    store.close()
    (tmp_path / "db" / "CURRENT").unlink()
    with pytest.raises(StoreError, match="db"):
        LevelStore(tmp_path / "db")
    assert list((tmp_path / "db").glob("*.log"))


def test_the_first_write_that_fails_is_the_last_and_what_was_before_it_is_kept(
    tmp_path: Path,
) -> None:
    """The log file may not grow any more, as on a full disk; then it may again."""
    script = """
import resource, signal, sys
from pathlib import Path
from krowlspider.frontier.store import LevelStore, StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = LevelStore(Path(sys.argv[1]), create=True)
def put(key, size):
    batch = store.batch()
    batch.put(key, b"x" * size)
    batch.write()
put(b"a", 1000)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
for key in (b"b", b"c"):
    try:
        put(key, 5000 if key == b"b" else 10)
    except StoreError as error:
        print("refused", key.decode())
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "db")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[:2] == ["refused b", "refused c"]
    store = LevelStore(tmp_path / "db")
    try:
        assert store.get(b"a") == b"x" * 1000
        assert store.get(b"c") is None
    finally:
        store.close()


@given(
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=3), st.one_of(st.none(), st.binary(max_size=3))),
        max_size=20,
    ),
    st.binary(max_size=2),
)
def test_the_twin_agrees_with_a_plain_dict(
    changes: list[tuple[bytes, bytes | None]], prefix: bytes
) -> None:
    store, model = MemoryStore(), dict[bytes, bytes]()
    batch = store.batch()
    for key, value in changes:
        if value is None:
            batch.delete(key)
            model.pop(key, None)
        else:
            batch.put(key, value)
            model[key] = value
    batch.write()
    assert list(store.items(prefix)) == sorted(
        (key, value) for key, value in model.items() if key.startswith(prefix)
    )
