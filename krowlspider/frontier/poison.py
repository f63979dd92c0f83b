"""Poison: a page that killed the process three times is set aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.hosts.host import Host
from krowlspider.frontier.stopped import change_batch, drop_entries, read_host
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import host_in

if TYPE_CHECKING:
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.store.store import Store

# One death may be a kill from outside that met the page by chance; three are not.
POISON_STRIKES = 3


def strike(store: Store, key: bytes) -> Entry | None:
    """Count a strike against the entry that a dead process was working on, and return the entry.

    With enough strikes it moves to the poison range. Return None if ``key`` is that of a host, or
    of an entry that is not queued any more. Call this before a new `WorkMark` blanks the file: a
    death in between counts a strike twice, and the other order would lose it.
    """
    saved = store.get(key) if key and not schema.is_record(key) else None
    if saved is None:
        return None
    name = host_in(key)
    entry = entry_of(key, saved)
    entry.strikes += 1
    if entry.strikes < POISON_STRIKES:
        batch = store.batch(sync=True)
        batch.put(key, entry.encode(name))
    else:
        batch = change_batch(store)
        batch.put(free_place(store, key), entry.encode(name))
        drop_entries(store, read_host(store, name) or Host(name), [key], "poison", batch)
    batch.write()
    return entry


def is_poison(entry: Entry) -> bool:
    """Return whether an entry has enough strikes to be set aside."""
    return entry.strikes >= POISON_STRIKES


def free_place(store: Store, key: bytes) -> bytes:
    """Return the key of a queue entry in the poison range, or the next free one."""
    # A lane of retries restarts at its first sequence, so an earlier entry may have the key.
    place = schema.POISON + key[len(schema.QUEUE) :]
    while store.get(place) is not None:
        place = place[:-8] + (int.from_bytes(place[-8:], "big") + 1).to_bytes(8, "big")
    return place
