"""Changes by hand: drop what a host has queued, or forget the host."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.errors import KrowlError
from krowlspider.frontier.stopped import change_batch, drop_entries, give_back, put_host, read_host
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import entry_keys
from krowlspider.frontier.store.schema import authorities_of, poison_prefix
from krowlspider.urls.host import port_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.store.store import Store

# Keys removed in one batch: about 1 MB.
_BATCH = 10_000


class UnknownHostError(KrowlError):
    """The frontier has nothing of a host; ``others`` are those at other ports of its name."""

    def __init__(self, name: str, others: Iterable[str] = ()):
        known = ", ".join(islice(others, 5))
        where = "" if known or port_of(name) is not None else " at any port"
        way = f"give one of {known}" if known else "give it as it stands in a URL"
        super().__init__(f"the frontier has no host {name!r}{where}: {way}")


def drop_host(store: Store, name: str) -> int:
    """Remove all queued entries of a host, counted as ``dropped/operator``; return how many.

    Everything else of the host stays.

    :raises UnknownHostError: there is no such host
    """
    host = read_host(store, name)
    if host is None:
        raise UnknownHostError(name)
    return _drop_queue(store, host)


def _drop_queue(store: Store, host: Host) -> int:
    before = host.queue.dropped
    keys = entry_keys(store, host.name)
    while some := list(islice(keys, _BATCH)):
        batch = change_batch(store)
        drop_entries(store, host, some, "operator", batch)
        batch.write()
    if host.queue.queued:
        # The record counted too many: a death came between a commit and the record.
        host.queue.queued = 0
        batch = change_batch(store)
        put_host(host, batch)
        batch.write()
    return host.queue.dropped - before


def forget_host(store: Store, name: str, remove_filter: Callable[[], None]) -> tuple[int, int]:
    """Remove everything of a host; return how many identities were seen, and how many queued.

    ``remove_filter`` removes the saved seen filter durably, which still has the identities. It goes
    first, then the rows of pages, the marks, and the entries: so each URL is queued or unseen
    wherever this stops.

    :raises UnknownHostError: there is nothing of the host
    """
    host = read_host(store, name)
    robots = [schema.robots_key(authority) for authority in authorities_of(name)]
    seen, poison = schema.seen_prefix(name), poison_prefix(name)
    ranges = (seen, schema.host_key(name), poison)
    if not any(next(store.keys(prefix), None) for prefix in ranges) and not any(
        map(store.get, robots)
    ):
        raise UnknownHostError(name)
    remove_filter()
    _remove(store, store.keys(schema.page_prefix(name)))
    marked = sum(1 for _ in schema.marked_by(store.items(seen)))
    _remove(store, store.keys(seen))
    dropped = 0 if host is None else _drop_queue(store, host)
    _remove(store, store.keys(poison))
    batch = change_batch(store)
    if host is not None:
        give_back(store, name, host.queue.done, batch)
    own = (
        *(schema.deferred_key, schema.host_key, schema.hold_key),
        *(schema.trust_key, schema.hints_key),
    )
    learnt = (schema.soft_not_found_key(name), schema.demand_key(name), schema.DEMAND)
    # Without the sum, the next start adds up the demands of the hosts.
    for key in (*(key_of(name) for key_of in own), *learnt, *robots):
        batch.delete(key)
    batch.write()
    return marked, dropped


def _remove(store: Store, keys: Iterator[bytes]) -> None:
    while some := list(islice(keys, _BATCH)):
        batch = change_batch(store)
        for key in some:
            batch.delete(key)
        batch.write()
