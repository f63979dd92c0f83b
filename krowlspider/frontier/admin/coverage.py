"""Which hosts of a frontier an order of a person covers, and how much they have."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.frontier.admin.words import counted
from krowlspider.frontier.hosts.host import IN_FLIGHT
from krowlspider.frontier.stopped import read_host
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import host_in
from krowlspider.urls.blocks import Blocks
from krowlspider.urls.host import port_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.store.store import Store

# Hosts on disk that are looked at for a rule of many names: about 50 ms.
LOOKED_AT = 5000
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
    # Copies: a host that was only asked for is in memory too.
    known = {name: host for name, host in in_memory.items() if host.record or host.has_work}
    found = {name: host for name, host in known.items() if rules.rule_of(name) is not None}
    is_all = True
    if rule[-1] in ",)":
        looked_at = [host_in(key) for key, _ in islice(store.firsts(schema.QUEUE), LOOKED_AT)]
        is_all = len(looked_at) < LOOKED_AT
        names = [name for name in looked_at if rules.rule_of(name) is not None]
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
