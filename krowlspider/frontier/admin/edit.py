"""Changes by hand to a frontier that no crawl has open: drop what a host has queued, or forget the host.

Each batch leaves a frontier that a crawl can go on from, so a change that was cut short is made whole by asking for
it again. The mark of a clean end and the tally go with the first batch: the next start counts the hosts anew.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

from krowlspider.errors import KrowlError
from krowlspider.frontier.budget import DomainBudget
from krowlspider.frontier.hosts.host import Host
from krowlspider.frontier.hosts.record import decode_host, encode_host, place_in
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import entry_keys
from krowlspider.frontier.store.schema import poison_prefix
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.frontier.store.store import Batch, Store

# Keys removed in one batch: about 1 MB.
BATCH = 10_000
_DROPPED = "dropped/operator"


class UnknownHostError(KrowlError):
    """The frontier has nothing of a host."""

    def __init__(self, name: str):
        super().__init__(
            f"the frontier has nothing of host {name!r}: give it as it stands in a URL,"
            " with its port unless that is the scheme's own"
        )


def _in_chunks(keys: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Keys in lists of at most ``size``."""
    chunk: list[bytes] = []
    for key in keys:
        chunk.append(key)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def drop_host(store: Store, name: str, *, size: int = BATCH) -> int:
    """Remove all that a host has queued, counted as ``dropped/operator``; returns how many URLs that were.
    ``size`` is that of a batch, in keys.

    Its seen marks stay, so they do not come back, and so do its pace, its robots.txt and its poison.

    :raises UnknownHostError: there is no such host
    """
    if store.get(schema.host_key(name)) is None:
        raise UnknownHostError(name)
    return _drop_entries(store, name, size)


def _drop_entries(store: Store, name: str, size: int) -> int:
    record = store.get(schema.host_key(name))
    host = Host(name) if record is None else decode_host(name, record)
    if not host.queue.queued and next(entry_keys(store, name), None) is None:
        return 0
    dropped = 0
    for keys in _in_chunks(entry_keys(store, name), size):
        batch = _batch(store)
        for key in keys:
            batch.delete(key)
        host.queue.queued = max(0, host.queue.queued - len(keys))
        host.queue.dropped += len(keys)
        _count_dropped(store, len(keys), batch)
        _give_back(store, name, len(keys), batch)
        _put_host(host, batch)
        batch.write()
        dropped += len(keys)
    if host.queue.queued:
        # A count that came back too high from a crash ends here.
        host.queue.queued = 0
        batch = _batch(store)
        _put_host(host, batch)
        batch.write()
    return dropped


def _put_host(host: Host, batch: Batch) -> None:
    """Write a host's record; without entries it has no place in the heap. One that is deferred stays so."""
    if not host.queue.queued:
        host.queue.levels = {}
        if (placed := place_in(host.record)) is not None:
            batch.delete(schema.due_key(placed, host.name))
    batch.put(schema.host_key(host.name), encode_host(host))


def _count_dropped(store: Store, count: int, batch: Batch) -> None:
    saved = store.get(schema.COUNTERS)
    counters: Counter[str] = Counter(json.loads(saved) if saved else {})
    counters[_DROPPED] += count
    batch.put(schema.COUNTERS, json.dumps(counters).encode())


def _give_back(store: Store, name: str, count: int, batch: Batch) -> None:
    """URLs of a host no longer count against its domain's budget, where there is one."""
    budget = DomainBudget(store, 0)
    domain = domain_of(name)
    if budget.count(domain):
        for _ in range(count):
            budget.give_back(domain)
        budget.end_batch(batch)


def forget_host(
    store: Store, name: str, remove_filter: Callable[[], None], *, size: int = BATCH
) -> tuple[int, int]:
    """Remove all that is known of a host, so that it can be discovered anew; returns how many seen marks and
    how many queued URLs that were. ``remove_filter`` removes the saved seen filter, durably; ``size`` is that of a
    batch, in keys.

    The order keeps a URL that is not done from being seen and not queued, wherever this is cut short: the filter
    first, because it would still know keys whose marks are gone; then the marks, before the entries. A URL
    discovered in between would be queued twice, and none is lost.

    :raises UnknownHostError: there is nothing of it
    """
    robots = [schema.robots_key(f"{scheme}://{name}") for scheme in ("http", "https")]
    seen_marks, queue, poison = schema.seen_prefix(name), schema.host_key(name), poison_prefix(name)
    firsts = (next(store.keys(prefix), None) for prefix in (seen_marks, queue, poison))
    singles = (store.get(key) for key in robots)
    if all(found is None for found in chain(firsts, singles)):
        raise UnknownHostError(name)
    remove_filter()
    seen = sum(1 for _ in schema.marked_by(store.items(seen_marks)))
    _remove(store, seen_marks, size)
    dropped = _drop_entries(store, name, size)
    _remove(store, poison, size)
    batch = _batch(store)
    if (record := store.get(schema.host_key(name))) is not None:
        _give_back(store, name, decode_host(name, record).queue.done, batch)
    for key in (schema.deferred_key(name), schema.host_key(name), schema.hold_key(name), *robots):
        batch.delete(key)
    batch.write()
    return seen, dropped


def _remove(store: Store, prefix: bytes, size: int) -> None:
    for keys in _in_chunks(store.keys(prefix), size):
        batch = _batch(store)
        for key in keys:
            batch.delete(key)
        batch.write()


def _batch(store: Store) -> Batch:
    batch = store.batch(sync=True)
    batch.delete(schema.CLEAN)
    batch.delete(schema.TALLY)
    batch.delete(schema.LOAD)
    return batch
