"""The seen set forgets no URL, and has almost no false positives."""

from __future__ import annotations

import re
from hashlib import blake2b
from operator import index
from typing import TYPE_CHECKING

import pytest
from rbloom import Bloom

from krowlspider.frontier.seen import FALSE_POSITIVES, FilterFile, Recent, SeenFilter, SeenSet
from krowlspider.frontier.store.schema import JOINED, KEY_SIZE, SEEN, marked_by
from krowlspider.urls.canonical import IdentityHasher
from tests.frontier.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from krowlspider.frontier.store.store import Batch, Store

HASHER = IdentityHasher(7)


def key(number: int) -> bytes:
    return HASHER.key(f"http://a.test/{number}")


def mark(store: Store, seen: SeenSet, host: str, *numbers: int) -> None:
    batch = store.batch()
    for number in numbers:
        seen.mark(host, [key(number)])
    seen.end_batch(batch)
    batch.write()


def test_invariant_7_a_growing_filter_forgets_nothing() -> None:
    seen = SeenFilter(100)
    for number in range(5000):
        seen.update([key(number)])
    assert all(key(number) in seen for number in range(5000))
    assert seen.count == 5000
    assert seen.layers == 4


def test_invariant_7_one_false_positive_in_a_million() -> None:
    seen = SeenFilter(20_000)
    seen.update(key(number) for number in range(60_000))
    # 100,000 look-ups at 1e-6 are 0.1 expected; three or more have a chance of 2e-4.
    assert len(seen.among([key(number) for number in range(1_000_000, 1_100_000)])) < 3
    assert 0 < sum(map(rate_of, seen.snapshot(0).full)) < FALSE_POSITIVES
    assert sum(map(rate_of, [*seen.snapshot(0).full, newest_of(seen)])) < FALSE_POSITIVES


def newest_of(seen: SeenFilter) -> Bloom:
    return Bloom.load_bytes(seen.snapshot(0).newest, index)


def rate_of(layer: Bloom) -> float:
    """Return the expected share of false positives, from the share of set bits."""
    data = layer.save_bytes()
    hashes, bits = int.from_bytes(data[:8], "little"), data[8:]
    assert 8 * len(bits) == layer.size_in_bits
    return float((int.from_bytes(bits, "little").bit_count() / layer.size_in_bits) ** hashes)


def test_a_bulk_update_fills_layers_as_single_keys_do() -> None:
    one, bulk = SeenFilter(10), SeenFilter(10)
    for number in range(75):
        one.update([key(number)])
    bulk.update(key(number) for number in range(75))
    assert (one.count, one.layers, one.fill) == (bulk.count, bulk.layers, bulk.fill)
    assert all(key(number) in bulk for number in range(75))


def test_invariant_7_marks_on_disk_rebuild_the_filter(
    open_store: Callable[[], Store],
) -> None:
    store = open_store()
    seen = SeenSet(store, 10)
    mark(store, seen, "a.test", *range(30))
    rebuilt = SeenSet(store, 10)
    assert len(rebuilt) == 30
    assert all(rebuilt.known("a.test", key(number)) for number in range(30))


@pytest.mark.parametrize("verify", [False, True])
def test_verify_refutes_and_counts_a_false_positive(
    open_store: Callable[[], Store], verify: bool
) -> None:
    store = open_store()
    seen = SeenSet(store, 10, verify=verify)
    mark(store, seen, "a.test", 1)
    # In the filter without a mark on disk: a false positive.
    seen.filter.update([key(2)])
    assert seen.known("a.test", key(1))
    assert seen.known("a.test", key(2)) is not verify
    assert seen.false_positives == (1 if verify else 0)
    assert (seen.expected_losses == 0) is verify


def marks(store: Store) -> list[int]:
    """Return how many identities each mark on disk holds."""
    return [1 + len(others) // KEY_SIZE for _, others in store.items(SEEN)]


def test_a_batch_writes_one_mark_for_each_host(
    open_store: Callable[[], Store],
) -> None:
    store = open_store()
    seen = SeenSet(store, 10)
    batch = store.batch()
    for number in range(20):
        seen.mark("a.test", [key(number)])
        seen.mark("b.test", [key(100 + number)])
    seen.end_batch(batch)
    batch.write()
    assert marks(store) == [20, 20]
    numbers = [*range(20), *range(100, 120)]
    assert set(marked_by(store.items(SEEN))) == {*map(key, numbers)}
    rebuilt = SeenSet(store, 10)
    assert len(rebuilt) == 40
    assert all(rebuilt.known("a.test", key(number)) for number in numbers)


def test_restoring_a_mark_keeps_what_it_stands_for(
    open_store: Callable[[], Store],
) -> None:
    store = open_store()
    seen = SeenSet(store, 1000)
    mark(store, seen, "a.test", 1, 2, 3)
    batch = store.batch()
    for number in (1, 2, 4, 1, 4):
        seen.restore("a.test", key(number))
    seen.end_batch(batch)
    batch.write()
    assert len(seen) == 4
    again = SeenSet(store, 1000)
    assert all(key(number) in again.filter for number in range(1, 5))
    found = set(marked_by(store.items(SEEN)))
    assert found == {key(number) for number in range(1, 5)}


def test_a_long_batch_of_one_host_writes_several_marks(open_store: Callable[[], Store]) -> None:
    store = open_store()
    seen = SeenSet(store, 10)
    mark(store, seen, "a.test", *range(1000))
    assert max(marks(store)) < 100
    assert sum(marks(store)) == 1000
    assert len(SeenSet(store, 10)) == 1000


def test_invariant_7_verify_splits_joined_marks(
    open_store: Callable[[], Store],
) -> None:
    store = open_store()
    for at in range(0, 400, 2):
        mark(store, SeenSet(store, 10), "a.test", at, at + 1)
    seen = SeenSet(store, 10, verify=True)
    assert marks(store) == [1] * 400
    # The next start does not look for joined marks.
    assert store.get(JOINED) is None
    seen.filter.update([key(1000)])
    assert all(seen.known("a.test", key(number)) for number in range(400))
    assert not seen.known("a.test", key(1000))


def test_invariant_7_verify_is_exact_after_a_while_without(
    open_store: Callable[[], Store],
) -> None:
    store = open_store()
    mark(store, SeenSet(store, 10, verify=True), "a.test", 1, 2)
    assert marks(store) == [1, 1]
    mark(store, SeenSet(store, 10), "a.test", 3, 4)
    seen = SeenSet(store, 10, verify=True)
    assert all(seen.known("a.test", key(number)) for number in range(1, 5))
    assert seen.false_positives == 0


class Died(Exception):
    """Stands for the death of the process."""


def test_invariant_7_a_death_during_the_split_loses_no_mark(
    open_store: Callable[[], Store],
) -> None:
    store = open_store()
    joined = SeenSet(store, 10)
    for at in range(0, 1000, 4):
        mark(store, joined, "a.test", *range(at, at + 4))
    batches = 0

    class Mortal:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        def batch(self, *, sync: bool = False) -> Batch:
            nonlocal batches
            batches += 1
            if batches == 3:
                raise Died
            return store.batch(sync=sync)

    with pytest.raises(Died):
        SeenSet(Mortal(), 10, verify=True)  # type: ignore[arg-type]
    assert {1, 4} == {*marks(store)}
    seen = SeenSet(store, 10, verify=True)
    assert marks(store) == [1] * 1000
    assert all(seen.known("a.test", key(number)) for number in range(1000))


def test_a_host_that_comes_back_has_single_marks(
    open_store: Callable[[], Store],
) -> None:
    store = open_store()
    seen = SeenSet(store, 10)
    mark(store, seen, "a.test", *range(10))
    mark(store, seen, "b.test", *range(20, 30))
    batch = store.batch()
    seen.recent_links.add(["http://a.test/"])
    steps = seen.forget("a.test", batch)
    assert not seen.recent_links.among(["http://a.test/"])
    batch.write()
    assert [*steps]
    assert not any(seen.known("a.test", key(number)) for number in range(10))
    assert marks(store) == [10]
    mark(store, seen, "a.test", *range(5))
    assert sorted(marks(store)) == [1, 1, 1, 1, 1, 10]
    assert [seen.known("a.test", key(number)) for number in range(10)] == [True] * 5 + [False] * 5
    assert seen.marked_among("a.test", map(key, range(10))) == {*map(key, range(5))}
    assert seen.marked_among("b.test", map(key, range(100))) == {*map(key, range(20, 30))}


@pytest.fixture
def file(tmp_path: Path) -> FilterFile:
    return FilterFile(tmp_path / "seen")


def of_version(data: bytes, version: int) -> bytes:
    """A whole filter of another version."""
    head, newline, layers = data.partition(b"\n")
    text = re.sub(rb'"version": \d+', b'"version": %d' % version, head.partition(b" ")[2])
    return b"%b %b" % (blake2b(text, digest_size=16).hexdigest().encode(), text) + newline + layers


def saved(store: Store, file: FilterFile, *numbers: int) -> SeenSet:
    """Return a seen set with these numbers, after a save."""
    seen = SeenSet(store, 10, file=file)
    mark(store, seen, "a.test", *numbers)
    seen.save(seen.snapshot())
    return seen


def test_a_start_replays_batches_into_the_saved_filter(
    open_store: Callable[[], Store], file: FilterFile
) -> None:
    store = open_store()
    seen = saved(store, file, *range(30))
    mark(store, seen, "a.test", *range(30, 50))
    mark(store, seen, "a.test", 50)
    again = SeenSet(store, 10, file=file)
    assert not again.rebuilt
    assert (len(again), again.filter.layers, again.filter.fill) == (
        len(seen),
        seen.filter.layers,
        seen.filter.fill,
    )
    assert all(again.known("a.test", key(number)) for number in range(51))
    assert not any(again.known("a.test", key(number)) for number in range(100, 1100))


def test_saving_deletes_the_batches_in_the_filter(
    open_store: Callable[[], Store], file: FilterFile
) -> None:
    store = open_store()
    seen = saved(store, file, 1, 2)
    assert list(store.keys(b"n")) == []
    mark(store, seen, "a.test", 3)
    assert len(list(store.keys(b"n"))) == 1
    again = SeenSet(store, 10, file=file)
    mark(store, again, "a.test", 4)
    again.save(again.snapshot())
    assert list(store.keys(b"n")) == []
    last = SeenSet(store, 10, file=file)
    assert not last.rebuilt
    assert all(last.known("a.test", key(number)) for number in range(1, 5))


def test_a_batch_written_during_a_save_is_not_lost(
    open_store: Callable[[], Store], file: FilterFile
) -> None:
    store = open_store()
    seen = SeenSet(store, 10, file=file)
    mark(store, seen, "a.test", 1)
    snapshot = seen.snapshot()
    mark(store, seen, "a.test", 2)
    seen.save(snapshot)
    again = SeenSet(store, 10, file=file)
    assert not again.rebuilt
    assert [again.known("a.test", key(number)) for number in (1, 2, 3)] == [True, True, False]


def test_invariant_7_a_filter_of_a_later_store_is_refused(
    open_store: Callable[[], Store], file: FilterFile
) -> None:
    store, later = open_store(), MemoryStore()
    seen = saved(store, file, 1)
    mark(store, seen, "a.test", 2)
    # The store continues, then is restored from a copy.
    seen = saved(later, file, 1)
    for number in range(2, 6):
        mark(later, seen, "a.test", number)
    seen.save(seen.snapshot())
    again = SeenSet(store, 10, file=file)
    assert again.rebuilt
    assert [again.known("a.test", key(number)) for number in range(1, 6)] == [True] * 2 + [
        False
    ] * 3
    # It is refused also when this store has as many batches.
    for number in range(11, 20):
        mark(store, again, "a.test", number)
    again = SeenSet(store, 10, file=file)
    assert [again.known("a.test", key(number)) for number in range(1, 6)] == [True] * 2 + [
        False
    ] * 3
    # The count continues.
    again.save(again.snapshot())
    mark(store, again, "a.test", 3)
    last = SeenSet(store, 10, file=file)
    assert not last.rebuilt
    assert last.known("a.test", key(3))


def test_invariant_7_a_filter_of_an_earlier_store_is_refused(
    open_store: Callable[[], Store], file: FilterFile
) -> None:
    store = open_store()
    seen = saved(store, file, 1)
    early = file.path.read_bytes()
    mark(store, seen, "a.test", 2)
    # The lists of keys in it are deleted.
    seen.save(seen.snapshot())
    file.path.write_bytes(early)
    again = SeenSet(store, 10, file=file)
    assert again.rebuilt
    assert all(again.known("a.test", key(number)) for number in (1, 2))


@pytest.mark.parametrize("name", ["version", "mark", "capacity", "count", "room", "sizes"])
def test_a_filter_with_a_damaged_head_is_rebuilt(
    open_store: Callable[[], Store], file: FilterFile, name: str
) -> None:
    store = open_store()
    saved(store, file, *range(30))
    before, found, after = file.path.read_bytes().partition(b'"%b": ' % name.encode())
    assert found
    digit = next(at for at, byte in enumerate(after) if chr(byte).isdigit())
    flipped = bytes([after[digit] ^ 1])
    file.path.write_bytes(before + found + after[:digit] + flipped + after[digit + 1 :])
    assert SeenSet(store, 10, file=file).rebuilt


@pytest.mark.parametrize("damage", ["absent", "cut", "flipped", "empty", "other version"])
def test_a_missing_or_damaged_filter_is_rebuilt(
    open_store: Callable[[], Store], file: FilterFile, damage: str
) -> None:
    store = open_store()
    saved(store, file, *range(30))
    data = file.path.read_bytes()
    middle = len(data) // 2
    file.path.write_bytes(
        {
            "absent": b"",
            "cut": data[:-1],
            "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            "empty": b"",
            "other version": of_version(data, 9),
        }[damage]
    )
    if damage == "absent":
        file.remove()
    again = SeenSet(store, 10, file=file)
    assert again.rebuilt
    assert len(again) == 30
    assert all(again.known("a.test", key(number)) for number in range(30))


def test_recent_keys_are_bounded_and_the_older_go_first() -> None:
    met = Recent(4)
    keys = [key(number) for number in range(100)]
    for each in keys:
        met.add([each])
    # The last key moved four from the newer half to the older one.
    assert met.among(keys) == set(keys[-4:])


def test_keys_added_again_stay_recent() -> None:
    met = Recent(4)
    keys = [key(number) for number in range(100)]
    for each in keys[1:]:
        met.add([each, keys[0]])
        assert keys[0] in met.among(keys[:1])


def test_a_key_that_is_looked_up_stays_recent() -> None:
    met = Recent(4)
    met.add([key(number) for number in range(4)])
    assert met.among([key(0)]) == {key(0)}
    met.add([key(number) for number in range(10, 13)])
    assert met.among([key(0), key(1)]) == {key(0)}


def test_removed_keys_are_not_recent() -> None:
    met = Recent(2)
    met.add([key(0), key(1)])
    met.add([key(2)])
    met.remove([key(0), key(2)])
    assert met.among([key(number) for number in range(3)]) == {key(1)}
