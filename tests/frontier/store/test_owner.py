"""A store names its job; a store of another job is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import Store, StoreError, check_owner, put_owner

if TYPE_CHECKING:
    from collections.abc import Callable


OURS, ANOTHER = 7, 2**64 - 1


def put(store: Store, key: bytes) -> None:
    batch = store.batch()
    batch.put(key, b"1")
    batch.write()


def test_a_store_belongs_to_the_job_that_made_it(open_store: Callable[[], Store]) -> None:
    store = open_store()
    check_owner(store, OURS, "a of ours")
    put_owner(store, OURS, "a of ours")
    put(store, schema.COUNTERS)
    check_owner(store, OURS, "a of ours")
    # The nodes of a cluster have one seed.
    for seed, ring in ((ANOTHER, "a of ours"), (OURS, "b of ours"), (OURS, "")):
        with pytest.raises(StoreError, match="of another job"):
            check_owner(store, seed, ring)
    # The owner is unchanged.
    put_owner(store, ANOTHER, "")
    check_owner(store, OURS, "a of ours")


def test_a_store_of_another_program_is_refused(open_store: Callable[[], Store]) -> None:
    store = open_store()
    put(store, b"0some-key")
    with pytest.raises(StoreError, match="of another program"):
        check_owner(store, OURS, "")


@pytest.mark.parametrize("left", [schema.COUNTERS, schema.host_key("a.test"), schema.JOINED])
def test_a_frontier_without_an_owner_is_accepted(
    open_store: Callable[[], Store], left: bytes
) -> None:
    store = open_store()
    put(store, left)
    check_owner(store, OURS, "")
