"""A look at a frontier that no crawl has open: totals, the biggest and slowest hosts, what is due next."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from heapq import nlargest, nsmallest
from typing import TYPE_CHECKING

from krowlspider.frontier import schema
from krowlspider.frontier.hosts import Host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.frontier.store import Store
    from krowlspider.politeness.pace import PaceRule


@dataclass(frozen=True, slots=True)
class HostLine:
    """One host: URLs queued, done and dropped, seconds of delay, seconds until it is due, errors in a row."""

    host: str
    queued: int
    done: int
    dropped: int
    delay: float
    due_in: float
    errors: int


@dataclass(frozen=True, slots=True)
class FrontierView:
    """What `look` found. ``dropped`` is by reason."""

    hosts: int
    queued: int
    done: int
    dropped: dict[str, int]
    biggest: list[HostLine]
    slowest: list[HostLine]
    next_due: list[HostLine]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def look(store: Store, rule: PaceRule, wall: float, most: int) -> FrontierView:
    """Read every host record once; ``wall`` is now in epoch seconds, ``most`` the hosts in each list."""
    lines = list(_lines(store, rule, wall))
    saved = store.get(schema.COUNTERS)
    counters: dict[str, int] = json.loads(saved) if saved else {}
    waiting = [line for line in lines if line.queued]
    return FrontierView(
        hosts=len(lines),
        queued=sum(line.queued for line in lines),
        done=counters.get("done", 0),
        dropped={
            name.removeprefix("dropped/"): count
            for name, count in sorted(counters.items())
            if name.startswith("dropped/")
        },
        biggest=nlargest(most, waiting, key=lambda line: line.queued),
        slowest=nlargest(most, lines, key=lambda line: line.delay),
        next_due=nsmallest(most, waiting, key=lambda line: line.due_in),
    )


def _lines(store: Store, rule: PaceRule, wall: float) -> Iterator[HostLine]:
    for key, value in store.items(schema.HOST):
        name = key[1:].decode()
        host = Host.decode(name, value)
        yield HostLine(
            name,
            host.queued,
            host.done,
            host.dropped,
            round(rule.delay(host.pace), 3),
            round(max(0.0, host.due - wall), 3),
            host.pace.errors,
        )
