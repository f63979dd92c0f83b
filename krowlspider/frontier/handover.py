"""A host on its way from one frontier to another: what goes, and what stays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from krowlspider.frontier import schema
from krowlspider.frontier.poison import free_place
from krowlspider.frontier.schema import poison_prefix, split_queue_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.hosts import Host
    from krowlspider.frontier.store import Batch, Store
    from krowlspider.politeness.robots import RobotsRecord

    # The identity of an entry, None for one without; ValueError for a request that only this job can read.
    Identify = Callable[[Entry], bytes | None]


@dataclass(slots=True, eq=False)
class Part:
    """Some of a host, as a chunk says, in the terms of the frontier that takes it. ``entries`` are (priority, entry,
    identity), without one where it is to be queued whether it is known or not; ``poison`` was set aside; ``done`` are
    keys of what is queued no more; ``robots`` are records by authority."""

    name: str
    transfer: bytes
    number: int
    last: bool
    identify: Identify
    host: Host | None = None
    entries: list[tuple[int, Entry, bytes | None]] = field(default_factory=list)
    poison: list[tuple[int, Entry]] = field(default_factory=list)
    done: list[bytes] = field(default_factory=list)
    robots: list[tuple[str, RobotsRecord]] = field(default_factory=list)

    def identity(self, entry: Entry) -> bytes | None:
        """None for one that has none, or that only this job can read."""
        return None if stays(entry, self.identify) else self.identify(entry)


def stays(entry: Entry, identify: Identify) -> bool:
    """Whether an entry cannot be handed over: its request is a pickle, or of a class that is none of Scrapy's."""
    if not entry.request:
        return False
    try:
        identify(entry)
    except ValueError:
        return True
    return False


def put_poison(store: Store, part: Part, batch: Batch) -> None:
    """Keep what was set aside, beside what was here."""
    number = sum(1 for _ in store.keys(poison_prefix(part.name)))
    for priority, entry in part.poison:
        place = free_place(store, schema.queue_key(schema.host_key(part.name), priority, number))
        batch.put(place, entry.encode(part.name))
        number = split_queue_key(place)[2] + 1
