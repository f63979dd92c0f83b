"""A look at a frontier that no crawl has open: totals, the biggest and slowest hosts, what is due next."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from heapq import heappush, heapreplace
from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.frontier.admin.host_view import EntryLine, entry_line
from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.hosts.record import decode_host, queued_in, times_in
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import records

if TYPE_CHECKING:
    from krowlspider.frontier.store.store import Store
    from krowlspider.politeness.delay import DelayPolicy


@dataclass(frozen=True, slots=True)
class HostLine:
    """One host: URLs queued, done and dropped, seconds of delay, seconds until it is due, errors in a row, and
    whether it is deferred because it did not answer."""

    host: str
    queued: int
    done: int
    dropped: int
    delay: float
    due_in: float
    errors: int
    deferred: bool


@dataclass(frozen=True, slots=True)
class FrontierView:
    """What `look` found. ``dropped`` is by reason, ``poison`` the URLs set aside, ``poisoned`` the first of them."""

    hosts: int
    deferred: int
    queued: int
    done: int
    dropped: dict[str, int]
    poison: int
    biggest: list[HostLine]
    slowest: list[HostLine]
    next_due: list[HostLine]
    poisoned: list[EntryLine]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class _Top:
    """The hosts with the greatest figures, of all that are offered."""

    def __init__(self, most: int):
        self._most = most
        self._found: list[tuple[float, str, bytes]] = []

    def offer(self, figure: float, name: str, record: bytes) -> None:
        if len(self._found) < self._most:
            heappush(self._found, (figure, name, record))
        elif figure > self._found[0][0]:
            heapreplace(self._found, (figure, name, record))

    def lines(self, rule: DelayPolicy, wall: float) -> list[HostLine]:
        best = sorted(self._found, key=lambda found: (-found[0], found[1]))
        return [_line(name, record, rule, wall) for _, name, record in best]


def look(store: Store, rule: DelayPolicy, wall: float, most: int) -> FrontierView:
    """Read every host record once, 6 µs each; ``wall`` is now in epoch seconds, ``most`` the hosts in each list."""
    biggest, slowest, soonest = _Top(most), _Top(most), _Top(most)
    hosts = deferred = queued = 0
    for name, record in records(store):
        waiting, aside = queued_in(record)
        due, rate = times_in(record)
        hosts += 1
        deferred += aside
        queued += waiting
        slowest.offer(rule.delay(rate), name, record)
        if waiting:
            biggest.offer(waiting, name, record)
            if not aside:
                soonest.offer(-due, name, record)
    saved = store.get(schema.COUNTERS)
    counters: dict[str, int] = json.loads(saved) if saved else {}
    return FrontierView(
        hosts=hosts,
        deferred=deferred,
        queued=queued,
        done=counters.get("done", 0),
        dropped={
            name.removeprefix("dropped/"): count
            for name, count in sorted(counters.items())
            if name.startswith("dropped/")
        },
        poison=sum(1 for _ in store.keys(schema.POISON)),
        biggest=biggest.lines(rule, wall),
        slowest=slowest.lines(rule, wall),
        next_due=soonest.lines(rule, wall),
        poisoned=[
            entry_line(key, entry_of(key, value), wall)
            for key, value in islice(store.items(schema.POISON), most)
        ],
    )


def _line(name: str, record: bytes, rule: DelayPolicy, wall: float) -> HostLine:
    host = decode_host(name, record)
    return HostLine(
        name,
        host.queue.queued,
        host.queue.done,
        host.queue.dropped,
        round(rule.delay(host.rate), 3),
        round(max(0.0, host.due - wall), 3),
        host.rate.errors,
        queued_in(record)[1],
    )
