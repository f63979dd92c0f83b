"""A frontier that no crawl has open: read its hosts and counters, correct them, drop entries.

A crawl can go on after each batch. A change that was cut short is completed by making it again.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from krowlspider.frontier.entry_queues import PAGE
from krowlspider.frontier.hosts.host import LANE_AT, Host, level_of
from krowlspider.frontier.hosts.host_record import Tally, decode_host, encode_host, place_in
from krowlspider.frontier.limits import DomainBudget
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import split_queue_key
from krowlspider.frontier.store.store import Batch, Store, entry_keys
from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from collections.abc import Collection


# Bytes of a key that number an entry within its level.
_IN_LEVEL = LANE_AT // 8


def read_host(store: Store, name: str) -> Host | None:
    """Return a host, with leased entries counted as queued; None without a record."""
    record = store.get(schema.host_key(name))
    return None if record is None else decode_host(name, record)


def read_counters(store: Store) -> Counter[str]:
    return Counter(json.loads(store.get(schema.COUNTERS) or b"{}"))


def fetched_in(counters: Counter[str]) -> dict[str, int]:
    """Return how many URLs were fetched of each kind, by the counters of a frontier.

    The kinds are those of `Lease`, and "robots" for answers to robots fetches. Pages come first.
    """
    others = {
        name.removeprefix("done/"): number
        for name, number in sorted(counters.items())
        if name.startswith("done/")
    }
    return {PAGE: counters["done"], **others}


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
    host.record = encode_host(host)
    batch.put(schema.host_key(host.name), host.record)


def give_back(store: Store, name: str, count: int, batch: Batch) -> None:
    """Take URLs of a host off its domain's budget, where there is one."""
    budget = DomainBudget(store, 0)
    if budget.count(domain_of(name)):
        budget.add(domain_of(name), -count)
        budget.end_batch(batch)


def catch_up(store: Store, tally: Tally) -> None:
    """Correct the records of the last commit's hosts from their queues on disk: the process may
    have died before it wrote the records."""
    batch = store.batch()
    for name in json.loads(store.get(schema.ACKNOWLEDGED) or b"[]"):
        if (host := read_host(store, name)) is None:
            # The host was forgotten by hand since.
            continue
        heads: dict[int, int] = {}
        host.queue.queued = 0
        before = b""
        for key in entry_keys(store, name):
            # The keys of a level differ in their last bytes only: the queue may be long.
            if key[:-_IN_LEVEL] != before:
                before = key[:-_IN_LEVEL]
                priority, sequence = split_queue_key(key)
                heads[level_of(priority, sequence)] = sequence
            host.queue.queued += 1
        for number, level in host.queue.levels.items():
            level.head = heads.get(number, level.tail)
        old = host.record
        put_host(host, batch)
        tally.replace(old, host.record)
    tally.put(batch)
    batch.write()
