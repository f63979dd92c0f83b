"""A look at a frontier that no crawl has open: totals, the biggest and slowest hosts, what is due next."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from heapq import heappush, heapreplace
from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.frontier import schema
from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.hosts import Host, queued_in, times_in
from krowlspider.frontier.hostview import EntryLine, entry_line
from krowlspider.frontier.queues import records

if TYPE_CHECKING:
    from krowlspider.frontier.store import Store
    from krowlspider.politeness.pace import PaceRule


@dataclass(frozen=True, slots=True)
class HostLine:
    """One host: URLs queued, done and dropped, seconds of delay, seconds until it is due, errors in a row, and
    whether it is put off because it did not answer."""

    host: str
    queued: int
    done: int
    dropped: int
    delay: float
    due_in: float
    errors: int
    put_off: bool


@dataclass(frozen=True, slots=True)
class FrontierView:
    """What `look` found. ``dropped`` is by reason, ``poison`` the URLs set aside, ``poisoned`` the first of them."""

    hosts: int
    put_off: int
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

    def lines(self, rule: PaceRule, wall: float) -> list[HostLine]:
        best = sorted(self._found, key=lambda found: (-found[0], found[1]))
        return [_line(name, record, rule, wall) for _, name, record in best]


def look(store: Store, rule: PaceRule, wall: float, most: int) -> FrontierView:
    """Read every host record once, 6 µs each; ``wall`` is now in epoch seconds, ``most`` the hosts in each list."""
    biggest, slowest, soonest = _Top(most), _Top(most), _Top(most)
    hosts = put_off = queued = 0
    for name, record in records(store):
        waiting, aside = queued_in(record)
        due, pace = times_in(record)
        hosts += 1
        put_off += aside
        queued += waiting
        slowest.offer(rule.delay(pace), name, record)
        if waiting:
            biggest.offer(waiting, name, record)
            if not aside:
                soonest.offer(-due, name, record)
    saved = store.get(schema.COUNTERS)
    counters: dict[str, int] = json.loads(saved) if saved else {}
    return FrontierView(
        hosts=hosts,
        put_off=put_off,
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


def _line(name: str, record: bytes, rule: PaceRule, wall: float) -> HostLine:
    host = Host.decode(name, record)
    return HostLine(
        name,
        host.queued,
        host.done,
        host.dropped,
        round(rule.delay(host.pace), 3),
        round(max(0.0, host.due - wall), 3),
        host.pace.errors,
        queued_in(record)[1],
    )
