"""Read host records and queue entries from a store.

They share one range of keys: each host's record comes right before its entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.store.schema import QUEUE, host_in, host_key, is_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.frontier.store.store import Store


def records(store: Store, after: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield name and record of each host in order, from the first host greater than ``after``."""
    for key, record in store.firsts(QUEUE, host_key(after) if after else b""):
        # A damaged store may have entries without a record.
        if is_record(key):
            yield host_in(key), record


def entries(store: Store, host: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each entry in a host's queue, in order."""
    prefix = host_key(host)
    return store.items(prefix, after=prefix)


def entry_keys(store: Store, host: str) -> Iterator[bytes]:
    """Yield the keys of a host's queue, in order."""
    prefix = host_key(host)
    return store.keys(prefix, after=prefix)


def all_entries(store: Store) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each entry of all queues, by host."""
    return (item for item in store.items(QUEUE) if not is_record(item[0]))
