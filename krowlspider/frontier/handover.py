"""A host as a whole, on its way from one frontier to another: its record, queue, seen keys and poison."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from krowlspider.frontier import schema
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.hosts import Host
from krowlspider.frontier.poison import free_place
from krowlspider.frontier.schema import poison_prefix, split_queue_key
from krowlspider.frontier.seen import KEY_SIZE

if TYPE_CHECKING:
    from krowlspider.frontier.store import Batch, Store


class HostBusyError(Exception):
    """The host has a request in transit, waits for another host, or has pages that are not acknowledged."""


@dataclass(slots=True, eq=False)
class HostLoad:
    """All that a frontier knows of a host. ``entries`` are (priority, entry) in the order of its queue, ``seen`` the
    8-byte keys of its identities, ``poison`` what was set aside. Its size is the host's: about 100 bytes a URL."""

    name: str
    record: bytes | None
    entries: list[tuple[int, Entry]] = field(default_factory=list)
    seen: list[bytes] = field(default_factory=list)
    poison: list[tuple[int, Entry]] = field(default_factory=list)


def unload(store: Store, name: str, batch: Batch) -> HostLoad:
    """Everything of a host, and its removal in ``batch``: one range for each kind."""
    load = HostLoad(name, store.get(schema.host_key(name)))
    batch.delete(schema.host_key(name))
    batch.delete(schema.put_off_key(name))
    for prefix, found in (
        (schema.queue_prefix(name), load.entries),
        (poison_prefix(name), load.poison),
    ):
        for key, value in store.items(prefix):
            priority = split_queue_key(key)[1]
            found.append((priority, entry_of(key, value)))
            batch.delete(key)
    for key in store.keys(schema.seen_prefix(name)):
        load.seen.append(key[-KEY_SIZE:])
        batch.delete(key)
    return load


def put_poison(store: Store, load: HostLoad, batch: Batch) -> None:
    """Keep what was set aside, beside what was here."""
    number = sum(1 for _ in store.keys(poison_prefix(load.name)))
    for priority, entry in load.poison:
        place = free_place(
            store, schema.queue_key(schema.queue_prefix(load.name), priority, number)
        )
        batch.put(place, entry.encode(load.name))
        number = split_queue_key(place)[2] + 1


def remembered(load: HostLoad) -> Host:
    """The host of a load as its record says, with nothing queued yet."""
    if load.record is None:
        return Host(load.name)
    host = Host.decode(load.name, load.record)
    host.queues.clear()
    host.queued = 0
    host.placed = None
    return host
