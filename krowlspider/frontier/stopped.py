"""A frontier that no crawl has open: read its hosts and counters, and drop entries.

A crawl can go on after each batch. A change that was cut short is completed by making it again.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from krowlspider.frontier.budget import DomainBudget
from krowlspider.frontier.hosts.record import decode_host, encode_host, place_in
from krowlspider.frontier.store import schema
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.store.store import Batch, Store


def read_host(store: Store, name: str) -> Host | None:
    """Return a host, with leased entries counted as queued; None without a record."""
    record = store.get(schema.host_key(name))
    return None if record is None else decode_host(name, record)


def read_counters(store: Store) -> Counter[str]:
    return Counter(json.loads(store.get(schema.COUNTERS) or b"{}"))


def dropped_in(counters: Counter[str]) -> dict[str, int]:
    """Return how many URLs were dropped for each reason, by the counters of a frontier."""
    start = "dropped/"
    return {
        name.removeprefix(start): number
        for name, number in sorted(counters.items())
        if name.startswith(start)
    }


def change_batch(store: Store) -> Batch:
    """Return a synced batch for a change by hand: the next start counts all totals anew."""
    batch = store.batch(sync=True)
    for key in (schema.CLEAN, schema.TALLY, schema.LOAD):
        batch.delete(key)
    return batch


def drop_entries(
    store: Store, host: Host, keys: Collection[bytes], reason: str, batch: Batch
) -> None:
    """Remove entries of a host with the batch, and count them as dropped for a reason."""
    for key in keys:
        batch.delete(key)
    host.queue.queued = max(0, host.queue.queued - len(keys))
    host.queue.dropped += len(keys)
    counters = read_counters(store)
    counters[f"dropped/{reason}"] += len(keys)
    batch.put(schema.COUNTERS, json.dumps(counters).encode())
    give_back(store, host.name, len(keys), batch)
    put_host(host, batch)


def put_host(host: Host, batch: Batch) -> None:
    """Put a host's record into the batch; a host without entries leaves the heap."""
    if not host.queue.queued:
        host.queue.levels = {}
        if (placed := place_in(host.record)) is not None:
            batch.delete(schema.due_key(placed, host.name))
    batch.put(schema.host_key(host.name), encode_host(host))


def give_back(store: Store, name: str, count: int, batch: Batch) -> None:
    """Take URLs of a host off its domain's budget, where there is one."""
    budget = DomainBudget(store, 0)
    if budget.count(domain_of(name)):
        budget.charge(domain_of(name), -count)
        budget.end_batch(batch)
