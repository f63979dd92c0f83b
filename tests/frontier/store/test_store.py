"""The contract of every store, and the durability of the LevelDB store."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EDQUOT, EFBIG, EIO, EMFILE, ENOSPC, EROFS
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

import plyvel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krowlspider.errors import lacks_room
from krowlspider.frontier.store.store import LevelStore, Store, StoreError
from tests.frontier.memory import MemoryStore, firsts_of

OpenStore = Callable[[], Store]


def put(store: Store, *pairs: tuple[bytes, bytes], sync: bool = False) -> None:
    batch = store.batch(sync=sync)
    for key, value in pairs:
        batch.put(key, value)
    batch.write()


@pytest.mark.parametrize("sync", [False, True])
def test_a_batch_is_visible_only_once_written(open_store: OpenStore, sync: bool) -> None:
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


def test_items_and_keys_of_a_prefix_come_in_byte_order(open_store: OpenStore) -> None:
    store = open_store()
    put(store, (b"b\xff", b"4"), (b"a", b"1"), (b"b", b"2"), (b"b\x00", b"3"), (b"c", b"5"))
    assert list(store.items(b"b")) == [(b"b", b"2"), (b"b\x00", b"3"), (b"b\xff", b"4")]
    assert list(store.keys(b"b")) == [b"b", b"b\x00", b"b\xff"]
    assert list(store.items(b"b", b"a")) == [(b"b", b"2"), (b"b\x00", b"3"), (b"b\xff", b"4")]
    assert list(store.items(b"b", b"b\x00")) == [(b"b\xff", b"4")]
    assert list(store.items(b"b", b"b\xff")) == []


def test_a_store_keeps_its_content_when_closed_and_opened(open_store: OpenStore) -> None:
    store = open_store()
    put(store, (b"a", b"1"))
    store.close()
    assert open_store().get(b"a") == b"1"


def test_read_returns_values_in_the_order_of_the_keys(
    open_store: OpenStore,
) -> None:
    store = open_store()
    put(store, (b"a", b"1"), (b"b", b"2"), (b"d", b""))
    batch = store.batch()
    batch.delete(b"b")
    batch.write()
    assert store.read([b"", b"a", b"b", b"c", b"d", b"e"]) == [None, b"1", None, None, b"", None]
    assert store.read([]) == []


def test_firsts_yields_the_first_key_of_each_group(open_store: OpenStore) -> None:
    store = open_store()
    keys = (
        b"pz\0",
        b"qa\0",
        b"qa\0\0",
        b"qa\0x",
        b"qa-b\0y",
        b"qa-b\0z",
        b"qa.b\0",
        b"qb\0x",
        b"r\0",
    )
    put(store, *((key, key[1:]) for key in keys))
    firsts = [b"qa\0", b"qa-b\0y", b"qa.b\0", b"qb\0x"]
    assert list(store.firsts(b"q")) == [(key, key[1:]) for key in firsts]
    assert [key for key, _ in store.firsts(b"q", b"qa\0")] == firsts[1:]
    assert [key for key, _ in store.firsts(b"q", b"qa-b\0")] == firsts[2:]
    assert list(store.firsts(b"q", b"qb\0")) == list(store.firsts(b"s")) == []


def test_a_reader_reads_keys_in_any_order(open_store: OpenStore) -> None:
    store = open_store()
    put(store, (b"a", b"1"), (b"c", b""))
    with store.reader() as reader:
        assert [reader.read(key) for key in (b"c", b"b", b"a", b"d")] == [b"", None, b"1", None]


def test_read_next_finds_the_next_key_and_any_other(open_store: OpenStore) -> None:
    store = open_store()
    put(store, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"4"))
    batch = store.batch()
    batch.delete(b"b")
    batch.write()
    with store.reader() as reader:
        assert reader.read_next(b"c") == b"3"
        for last in (b"a", b"b", b"c", b"d", b"e"):
            for key, value in (
                (b"a", b"1"),
                (b"b", None),
                (b"c", b"3"),
                (b"d", b"4"),
                (b"e", None),
            ):
                reader.read(last)
                assert reader.read_next(key) == value
                assert reader.read_next(key) == value


def _merges(store: LevelStore) -> int:
    """Return how often LevelDB moved or merged tables since it was opened."""
    sleep(0.2)
    log = (store.folder / "LOG").read_text()
    return log.count("Compacting") + log.count("Moved")


def test_reading_merges_no_tables_as_getting_does(tmp_path: Path) -> None:
    """The keys lie below a table with other keys of the same range."""
    store = LevelStore(tmp_path / "db", create=True)
    for turn in range(2):
        put(store, *((b"%06d" % number, b"." * 50) for number in range(turn, 20_000, 2)))
        store.flush()
    store.close()
    store = LevelStore(tmp_path / "db")
    cold = [b"%06d" % number for number in range(0, 20_000, 2)]
    before = _merges(store)
    assert None not in store.read(cold)
    assert all(store.read((key,)) != [None] for key in cold)
    assert _merges(store) == before
    for key in cold:
        store.get(key)
    assert _merges(store) > before
    store.close()


def test_a_damaged_table_is_not_read_as_empty(tmp_path: Path) -> None:
    store = LevelStore(tmp_path / "db", create=True)
    put(store, *((b"%06d" % number, b"." * 50) for number in range(1000)))
    store.flush()
    store.close()
    (table,) = (tmp_path / "db").glob("*.ldb")
    data = bytearray(table.read_bytes())
    data[20_000:30_000] = bytes(10_000)
    table.write_bytes(data)
    store = LevelStore(tmp_path / "db")
    keys = [b"%06d" % number for number in range(1000)]
    with pytest.raises(plyvel.CorruptionError):
        store.read(keys)
    store.close()


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.get(b"000500\0"),
        lambda store: store.read((b"000500\0",)),
        lambda store: list(store.keys(b"0")),
        lambda store: list(store.items(b"0")),
        lambda store: list(store.firsts(b"0")),
    ],
    ids=["get", "read", "keys", "items", "firsts"],
)
def test_every_way_of_reading_finds_a_flipped_bit(
    tmp_path: Path, read: Callable[[LevelStore], object]
) -> None:
    store = LevelStore(tmp_path / "db", create=True)
    put(store, *((b"%06d\0" % number, b"value %06d" % number) for number in range(1000)))
    store.flush()
    store.close()
    (table,) = (tmp_path / "db").glob("*.ldb")
    data = bytearray(table.read_bytes())
    data[data.index(b"value 000500") + 8] ^= 1
    table.write_bytes(data)
    store = LevelStore(tmp_path / "db")
    with pytest.raises(plyvel.CorruptionError):
        read(store)
    store.close()


def test_a_log_damaged_before_its_end_is_refused(
    tmp_path: Path,
) -> None:
    store = LevelStore(tmp_path / "db", create=True)
    for number in range(10):
        put(store, (b"%06d" % number, b"." * 50))
    store.close()
    (log,) = (tmp_path / "db").glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(StoreError):
        LevelStore(tmp_path / "db")


def test_a_durable_write_syncs_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LevelStore(tmp_path / "db", create=True)
    (log,) = (tmp_path / "db").glob("*.log")
    synced: list[bytes] = []

    def fsync(descriptor: int) -> None:
        if os.path.sameopenfile(descriptor, handle.fileno()):
            synced.append(log.read_bytes())

    with log.open("rb") as handle:
        monkeypatch.setattr(os, "fsync", fsync)
        put(store, (b"a", b"the first"))
        put(store, (b"b", b"the second"), sync=True)
    assert [b"the first" in each for each in synced] == [True, True]
    assert [b"the second" in each for each in synced] == [False, True]
    store.close()


def test_the_size_of_a_range_is_about_its_part(open_store: OpenStore) -> None:
    store = open_store()
    put(store, *((b"a%04d" % number, os.urandom(100)) for number in range(2000)))
    store.flush()
    whole, half = store.size(b"a", b"b"), store.size(b"a", b"a1000")
    assert whole == pytest.approx(2000 * 105, rel=0.2)
    assert half == pytest.approx(whole / 2, rel=0.1)
    assert store.size(b"b", b"c") == 0


def test_an_iteration_does_not_show_later_writes(open_store: OpenStore) -> None:
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


def test_a_missing_or_headless_folder_is_not_made_anew(
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


# --- a full disk ---


@contextmanager
def full_disk(size: int = 0) -> Iterator[None]:
    """Limit every file of this process to ``size`` bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def level_store(tmp_path: Path) -> Iterator[LevelStore]:
    store = LevelStore(tmp_path / "db", create=True)
    yield store
    store.close()


@pytest.mark.parametrize("sync", [False, True])
def test_the_first_write_without_room_is_the_last(level_store: LevelStore, sync: bool) -> None:
    """Also once there is room: the failed batch is lost, and nothing may be written behind it."""
    put(level_store, (b"a", b"1"))
    message = f"no room: make some on the disk of {level_store.folder} and start again"
    with full_disk(), pytest.raises(StoreError) as caught:
        put(level_store, (b"b", b"2"), sync=sync)
    assert str(caught.value) == message
    assert lacks_room(caught.value.__cause__)
    with pytest.raises(StoreError) as caught:
        put(level_store, (b"c", b"3"), sync=not sync)
    assert str(caught.value) == message
    level_store.close()
    store = LevelStore(level_store.folder)
    assert list(store.items(b"")) == [(b"a", b"1")]
    store.close()


def test_a_record_cut_in_half_loses_no_other(level_store: LevelStore) -> None:
    """The kernel writes only a part of the batch, as when a disk fills."""
    put(level_store, (b"a", b"x" * 1000))
    with full_disk(3000), pytest.raises(StoreError):
        put(level_store, (b"b", b"y" * 5000))
    assert max(log.stat().st_size for log in level_store.folder.glob("*.log")) == 3000
    with pytest.raises(StoreError):
        put(level_store, (b"c", b"z"))
    level_store.close()
    store = LevelStore(level_store.folder)
    put(store, (b"d", b"z"))
    store.close()
    store = LevelStore(level_store.folder)
    assert [key for key, _ in store.items(b"")] == [b"a", b"d"]
    store.close()


def test_a_merge_without_room_loses_nothing(level_store: LevelStore) -> None:
    """LevelDB then refuses every write until it is opened again."""
    put(level_store, *((b"%d" % number, b"x" * 1000) for number in range(100)))
    with full_disk():
        level_store.compact(b"\0", b"\xff")
    with pytest.raises(StoreError, match="no room"):
        put(level_store, (b"new", b"1"))
    level_store.close()
    store = LevelStore(level_store.folder)
    assert len(list(store.items(b""))) == 100
    store.close()


def test_a_store_without_room_opens_once_there_is_room(
    tmp_path: Path,
) -> None:
    """The next manifest of LevelDB is a link to /dev/full."""
    folder = tmp_path / "db"
    store = LevelStore(folder, create=True)
    put(store, (b"a", b"1"))
    store.close()
    full = [folder / f"MANIFEST-{number:06d}" for number in range(3, 20)]
    for path in full:
        path.symlink_to("/dev/full")
    with pytest.raises(StoreError) as caught:
        LevelStore(folder)
    assert str(caught.value) == f"no room to open it: make some on the disk of {folder}"
    assert lacks_room(caught.value.__cause__)
    for path in full:
        path.unlink(missing_ok=True)
    store = LevelStore(folder)
    assert store.get(b"a") == b"1"
    store.close()


@pytest.mark.parametrize("number", [ENOSPC, EDQUOT, EFBIG, EIO, EROFS, EMFILE])
def test_lacks_room_is_a_full_disk_a_quota_or_a_limit(number: int) -> None:
    words = f"IO error: db/000003.log: {os.strerror(number)}".encode()
    expected = number in {ENOSPC, EDQUOT, EFBIG}
    assert lacks_room(OSError(number, os.strerror(number))) is expected
    assert lacks_room(plyvel.IOError(words)) is expected


def test_a_write_that_fails_otherwise_is_the_last(tmp_path: Path) -> None:
    """The logs are dangling links, so their content cannot be synced."""
    store = LevelStore(tmp_path / "db", create=True)
    put(store, (b"a", b"1"))
    (tmp_path / "db" / "999999.log").symlink_to("999999.log")
    with pytest.raises(StoreError):
        put(store, (b"b", b"1"), sync=True)
    (tmp_path / "db" / "999999.log").unlink()
    with pytest.raises(StoreError):
        put(store, (b"c", b"1"))
    store.close()


# So few keys that batches change the same ones.
KEYS = [
    b"a",
    b"a\x00",
    b"aa",
    b"a\xff",
    b"b",
    b"ba",
    b"bb",
    b"q1\0",
    b"q1\0\1",
    b"q1a\0\0",
    b"q2\0",
]
CHANGES = st.lists(
    st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(max_size=3))), max_size=10
)


@pytest.mark.parametrize("is_level", [True, False])
@settings(max_examples=20)
@given(batches=st.lists(CHANGES, max_size=4), prefix=st.sampled_from([b"a", b"b", b"c", b""]))
def test_a_store_agrees_with_a_plain_dict(
    is_level: bool, batches: list[list[tuple[bytes, bytes | None]]], prefix: bytes
) -> None:
    model: dict[bytes, bytes] = {}
    with TemporaryDirectory() as folder:
        store = LevelStore(Path(folder) / "db", create=True) if is_level else MemoryStore()
        try:
            for changes in batches:
                batch = store.batch()
                for key, value in changes:
                    if value is None:
                        batch.delete(key)
                        model.pop(key, None)
                    else:
                        batch.put(key, value)
                        model[key] = value
                batch.write()
            expected = sorted(pair for pair in model.items() if pair[0].startswith(prefix))
            assert list(store.items(prefix)) == expected
            after = prefix + b"a"
            keys = [key for key, _ in expected]
            assert list(store.keys(prefix)) == keys
            assert list(store.items(prefix, after)) == [p for p in expected if p[0] > after]
            assert list(store.keys(prefix, after)) == [key for key in keys if key > after]
            assert {key: store.get(key) for key in model} == model
            assert store.read(KEYS) == [model.get(key) for key in KEYS]
            queues = sorted(pair for pair in model.items() if pair[0][:1] == b"q")
            assert list(store.firsts(b"q")) == list(firsts_of(queues))
            behind = [pair for pair in queues if not pair[0].startswith(b"q1\0")]
            assert list(store.firsts(b"q", b"q1\0")) == list(firsts_of(behind))
        finally:
            store.close()
