"""A part of a host's hand-over, as the frontier that takes the host understands it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from krowlspider.frontier.poison import free_place
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import poison_prefix, split_queue_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.store.store import Batch, Store
    from krowlspider.politeness.robots import RobotsRecord

    # Returns the identity of an entry, None without one. Raises ValueError for a request that only
    # this job can read.
    Identify = Callable[[Entry], bytes | None]


@dataclass(slots=True, eq=False)
class Part:
    """The content of one chunk.

    - ``name``: the host. ``transfer``: the id of its hand-over. ``number``: the place of the chunk
      in it. ``last``: no chunk follows.
    - ``host``: its record, where the chunk has one.
    - ``entries``: (priority, entry, identity); an entry without one is queued even if known.
    - ``poison``: (priority, entry). ``done``: identities that are not queued any more.
    - ``robots``: (authority, record). ``seeds``: (URL, state), as in the table of seeds. ``pages``:
      (identity, stored row). ``seed_names``: URLs of the seeds that these came from.
    """

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
    seeds: list[tuple[str, str]] = field(default_factory=list)
    pages: list[tuple[bytes, bytes]] = field(default_factory=list)
    seed_names: list[str] = field(default_factory=list)

    def identity(self, entry: Entry) -> bytes | None:
        """Return the identity of an entry; None without one, or if only this job can read it."""
        return None if stays(entry, self.identify) else self.identify(entry)


def stays(entry: Entry, identify: Identify) -> bool:
    """Return whether an entry cannot be handed over, because no other job can read its request."""
    if not entry.request:
        return False
    try:
        identify(entry)
    except ValueError:
        return True
    return False


def put_poison(store: Store, part: Part, batch: Batch) -> None:
    """Put the poison of a part into the batch, beside that of this frontier."""
    number = sum(1 for _ in store.keys(poison_prefix(part.name)))
    for priority, entry in part.poison:
        place = free_place(store, schema.queue_key(schema.host_key(part.name), priority, number))
        batch.put(place, entry.encode(part.name))
        number = split_queue_key(place)[1] + 1
