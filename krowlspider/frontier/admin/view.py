"""A view of a whole frontier: totals, the biggest and slowest hosts, and what is due next."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from itertools import chain, islice
from typing import TYPE_CHECKING, Self

from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.hosts.host import Health, Host
from krowlspider.frontier.hosts.host_record import decode_host
from krowlspider.frontier.stopped import dropped_in, fetched_in, read_counters
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import records
from krowlspider.frontier.store.schema import split_queue_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krowlspider.frontier.store.store import Store
    from krowlspider.politeness.delay import DelayPolicy

# Hosts compared with the best so far at a time.
_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class HostRow:
    """A host: entries queued, pages done, entries dropped, seconds of delay and until it is due,
    transport errors in a row, and whether it is deferred. ``due_in`` is None for one that a pause
    or a block covers."""

    host: str
    queued: int
    done: int
    dropped: int
    delay: float
    due_in: float | None
    errors: int
    deferred: bool

    @classmethod
    def of(cls, host: Host, policy: DelayPolicy, wall: float) -> Self:
        return cls(
            host.name,
            host.queue.queued,
            host.queue.pages,
            host.queue.dropped,
            round(policy.of(host.name).delay(host.rate), 3),
            None if host.is_put_off else seconds_until(host.due, wall),
            host.rate.errors,
            host.health is Health.DEFERRED,
        )


@dataclass(frozen=True, slots=True)
class EntryRow:
    """An entry; ``due_in`` is the time until its next try in seconds, 0 for immediately."""

    url: str
    priority: int
    depth: int
    tries: int
    strikes: int
    due_in: float

    @classmethod
    def of(cls, key: bytes, value: bytes, wall: float) -> Self:
        entry = entry_of(key, value)
        return cls(
            entry.url,
            split_queue_key(key)[0],
            entry.depth,
            entry.retries + entry.throttling,
            entry.strikes,
            seconds_until(entry.due, wall),
        )


@dataclass(frozen=True, slots=True)
class FrontierView:
    """Totals of a frontier, and the first of some lists.

    ``done`` are pages. ``fetched`` has them and all else by kind, ``dropped`` by reason.
    """

    hosts: int
    deferred: int
    queued: int
    done: int
    fetched: dict[str, int]
    dropped: dict[str, int]
    poison: int
    biggest: list[HostRow]
    slowest: list[HostRow]
    next_due: list[HostRow]
    poisoned: list[EntryRow]


def seconds_until(due: float, wall: float) -> float:
    return round(max(0.0, due - wall), 3)


def view_frontier(
    stores: Sequence[Store], policy: DelayPolicy, wall: float, most: int
) -> FrontierView:
    """Read all host records of the stores of a crawl, one for each of its processes.

    ``wall`` is now in epoch seconds, ``most`` the length of the lists.
    """
    biggest: list[Host] = []
    slowest: list[Host] = []
    soonest: list[Host] = []
    count = deferred = queued = 0
    found = chain.from_iterable(records(store) for store in stores)
    hosts = (decode_host(name, record) for name, record in found)
    while some := list(islice(hosts, _CHUNK)):
        waiting = [host for host in some if host.queue.queued]
        due = [host for host in waiting if host.health is not Health.DEFERRED]
        biggest = nlargest(most, biggest + waiting, key=lambda host: host.queue.queued)
        slowest = nlargest(
            most, slowest + some, key=lambda host: policy.of(host.name).delay(host.rate)
        )
        soonest = nsmallest(most, soonest + due, key=lambda host: host.due)
        count += len(some)
        deferred += sum(host.health is Health.DEFERRED for host in some)
        queued += sum(host.queue.queued for host in waiting)
    counters = sum((read_counters(store) for store in stores), Counter[str]())
    poison = chain.from_iterable(store.items(schema.POISON) for store in stores)
    return FrontierView(
        hosts=count,
        deferred=deferred,
        queued=queued,
        done=counters["done"],
        fetched=fetched_in(counters),
        dropped=dropped_in(counters),
        poison=sum(1 for store in stores for _ in store.keys(schema.POISON)),
        biggest=[HostRow.of(host, policy, wall) for host in biggest],
        slowest=[HostRow.of(host, policy, wall) for host in slowest],
        next_due=[HostRow.of(host, policy, wall) for host in soonest],
        poisoned=[EntryRow.of(key, value, wall) for key, value in islice(poison, most)],
    )
