"""The seen set forgets nothing and invents almost nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.seen import SeenFilter, SeenSet
from krowlspider.urls.canonical import IdentityHasher

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store import Store

HASHER = IdentityHasher(7)


def key(number: int) -> bytes:
    return HASHER.key(f"http://a.test/{number}")


def mark(store: Store, seen: SeenSet, host: str, *numbers: int) -> None:
    batch = store.batch()
    for number in numbers:
        seen.mark(host, key(number), batch)
    batch.write()


def test_invariant_8_the_filter_forgets_nothing_however_far_it_grows() -> None:
    seen = SeenFilter(100)
    for number in range(5000):
        seen.add(key(number))
    assert all(key(number) in seen for number in range(5000))
    assert seen.count == 5000
    assert seen.layers == 6


def test_invariant_8_the_filter_invents_at_most_one_in_a_million() -> None:
    seen = SeenFilter(20_000)
    seen.update(key(number) for number in range(60_000))
    # 300,000 look-ups of unknown keys at 1e-6 are 0.3 expected; four or more have a chance of 3e-4.
    assert sum(key(number) in seen for number in range(1_000_000, 1_300_000)) < 4


def test_a_bulk_update_fills_layers_as_adding_one_by_one_does() -> None:
    one, bulk = SeenFilter(10), SeenFilter(10)
    for number in range(75):
        one.add(key(number))
    bulk.update(key(number) for number in range(75))
    assert (one.count, one.layers, one.fill) == (bulk.count, bulk.layers, bulk.fill)
    assert all(key(number) in bulk for number in range(75))


def test_invariant_8_the_keys_on_disk_rebuild_the_filter(
    open_store: Callable[[], Store],
) -> None:
    store = open_store()
    seen = SeenSet(store, 10)
    mark(store, seen, "a.test", *range(30))
    rebuilt = SeenSet(store, 10)
    assert len(rebuilt) == 30
    assert all(rebuilt.known("a.test", key(number)) for number in range(30))


@pytest.mark.parametrize("verify", [False, True])
def test_with_verify_a_false_positive_is_found_out_and_counted(
    open_store: Callable[[], Store], verify: bool
) -> None:
    store = open_store()
    seen = SeenSet(store, 10, verify=verify)
    mark(store, seen, "a.test", 1)
    # In the filter, but with no mark on disk: what a false positive looks like.
    seen.filter.add(key(2))
    assert seen.known("a.test", key(1))
    assert seen.known("a.test", key(2)) is not verify
    assert seen.false_positives == (1 if verify else 0)
    assert (seen.expected_losses == 0) is verify
