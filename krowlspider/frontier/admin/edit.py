"""Which hosts an order of a person covers; drop what a host has queued, or forget the host."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.errors import KrowlError, counted
from krowlspider.frontier.hosts.host import IN_FLIGHT, Host
from krowlspider.frontier.stopped import change_batch, drop_entries, give_back, put_host, read_host
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import authorities_of, host_in, poison_prefix
from krowlspider.frontier.store.store import Store, entry_keys
from krowlspider.urls.canonical import name_of, port_of
from krowlspider.urls.seeds import Blocks, rule_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.frontier.frontier import Frontier

# Hosts on disk that are looked at for a rule of many names: some milliseconds.
LOOKED_AT = 1000
# Hosts that are named.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Covered:
    """What an order covers: its first ``hosts`` by name and how many there are, their URLs queued,
    and requests in flight. ``is_all`` is False where more hosts on disk were not looked at."""

    hosts: list[str]
    host_count: int
    queued: int
    in_flight: int
    is_all: bool = True

    @classmethod
    def sum(cls, parts: Iterable[Covered]) -> Covered:
        """Return what an order covers at several nodes together."""
        each = list(parts)
        return cls(
            [name for part in each for name in part.hosts][:NAMED],
            sum(part.host_count for part in each),
            sum(part.queued for part in each),
            sum(part.in_flight for part in each),
            all(part.is_all for part in each),
        )

    @property
    def words(self) -> str:
        """Return this as a sentence for people."""
        if not self.host_count:
            more = "" if self.is_all else f" among the first {LOOKED_AT:,} hosts"
            return f"It is unknown{more}: the order holds when it comes."
        least = "" if self.is_all else "at least "
        names = ", ".join([*self.hosts, *(["..."] if self.host_count > len(self.hosts) else [])])
        ends = " in flight, which ends" if self.in_flight == 1 else " in flight, which end"
        requests = counted(self.in_flight, "request") + (ends if self.in_flight else " in flight")
        return (
            f"It covers {least}{counted(self.host_count, 'host')} ({names}):"
            f" {counted(self.queued, 'URL')} queued, {requests}."
        )


def hosts_named(store: Store, name: str) -> Iterator[str]:
    """Yield the hosts on disk that a name covers: all its ports, or the one that it has."""
    port = port_of(name)
    if port is None or port in {80, 443}:
        bare = name if port is None else name.rpartition(":")[0]
        if store.get(schema.host_key(bare)) is not None:
            yield bare
    if port is None:
        for key, _ in store.firsts(schema.QUEUE + f"{name}:".encode()):
            yield host_in(key)
    elif store.get(schema.host_key(name)) is not None:
        yield name


def covered_hosts(frontier: Frontier, rule: str) -> tuple[list[Host], bool]:
    """Return the hosts that a rule of `block_rule` covers, and whether these are all of them."""
    in_memory = frontier.schedule.cache.hosts
    rules, store = Blocks([(rule, "")]), frontier.store
    # Each name that a rule covers contains its text, which is found much faster than the rule.
    text = name_of(rule_name(rule))
    found = {
        name: host
        for name, host in in_memory.items()
        # A host that was only asked for is in memory too.
        if text in name and (host.record or host.has_work) and rules.rule_of(name) is not None
    }
    is_all = True
    if rule[-1] in ",)":
        looked_at = [host_in(key) for key, _ in islice(store.firsts(schema.QUEUE), LOOKED_AT)]
        is_all = len(looked_at) < LOOKED_AT
        names = [name for name in looked_at if text in name and rules.rule_of(name) is not None]
    else:
        names = list(hosts_named(store, rule))
    for name in names:
        if name not in found and (host := read_host(store, name)) is not None:
            found[name] = host
    return [found[name] for name in sorted(found)], is_all


def coverage(frontier: Frontier, rule: str) -> Covered:
    """Return what a rule of `block_rule` covers now."""
    hosts, is_all = covered_hosts(frontier, rule)
    return Covered(
        [host.name for host in hosts[:NAMED]],
        len(hosts),
        sum(host.queue.queued for host in hosts),
        sum(host.state is IN_FLIGHT for host in hosts),
        is_all,
    )


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
    _remove(store, store.keys(schema.quota_key(name, "")))
    marked = sum(1 for _ in schema.marked_by(store.items(seen)))
    _remove(store, store.keys(seen))
    dropped = 0 if host is None else _drop_queue(store, host)
    _remove(store, store.keys(poison))
    batch = change_batch(store)
    if host is not None:
        give_back(store, name, host.queue.done, batch)
    own = (
        *(schema.deferred_key, schema.host_key, schema.hold_key),
        *(schema.trust_key, schema.hints_key, schema.terms_key),
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
