"""Hosts whose pages block the event loop: on the second hold, the host is set aside for a day.

The watchdog writes each hold of more than five seconds to a file. The next start counts the holds
in it. A host set aside is out of the heap like a parked one, and its URLs stay queued: after the
day it is tried again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import Health
from krowlspider.frontier.hosts.host_record import decode_host, encode_host, place_in
from krowlspider.frontier.hosts.tally import Tally
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import whole_microseconds
from krowlspider.politeness.delay import PARKED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from krowlspider.frontier.store.store import Batch, Store

# The file of holds in a crawl's folder: one JSON object a line, with ``host`` and ``url``.
NOTES = "holds"
# A single hold may be the machine's fault.
_TIMES = 2
# The job clock at the last commit, in front of its record.
_CLOCK = Struct(">d")


@dataclass(slots=True)
class Hold:
    """The holds of one host. ``times`` counts them. ``url`` is the page of the last one; empty
    where it was none of the host's pages."""

    host: str
    times: int = 0
    url: str = ""

    @property
    def aside(self) -> bool:
        """Return whether the host is set aside for its holds."""
        return self.times >= _TIMES


def hold_of(store: Store, name: str) -> Hold:
    """Return the holds of a host, as the store has them."""
    saved = store.get(schema.hold_key(name))
    return Hold(name) if saved is None else Hold(name, **json.loads(saved))


def settle_holds(store: Store, notes: Path, wall: float) -> list[Hold]:
    """Count the holds in the file, and set aside the hosts that have enough. Return a `Hold` for
    each host in the file that the store knows. Call this before anything is popped.

    ``wall`` is the present time in epoch seconds. The holds are on disk, in one synced batch,
    before the file is removed: a death between the two counts them twice.
    """
    found: dict[str, Hold] = {}
    for name, url in _read(notes):
        if name in found or store.get(schema.host_key(name)) is not None:
            hold = found.setdefault(name, hold_of(store, name))
            hold.times += 1
            hold.url = url
    if found:
        batch = store.batch(sync=True)
        tally = Tally.read(store)
        for hold in found.values():
            said = {"times": hold.times, "url": hold.url}
            batch.put(schema.hold_key(hold.host), json.dumps(said).encode())
            if hold.aside:
                _set_aside(store, hold.host, wall, batch, tally)
        tally.put(batch)
        batch.write()
    notes.unlink(missing_ok=True)
    return list(found.values())


def _read(notes: Path) -> Iterator[tuple[str, str]]:
    """Yield host and URL of each hold in the file; nothing without a file."""
    try:
        lines = notes.read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            said = json.loads(line)
            yield str(said["host"]), str(said["url"])
        except (ValueError, TypeError, KeyError):
            # A power loss or a full disk cut this line: the next hold is written again.
            continue


def _set_aside(store: Store, name: str, wall: float, batch: Batch, tally: Tally) -> None:
    """Take a host out of the heap for a day, as `Deferral.defer` does."""
    record = store.get(schema.host_key(name))
    assert record is not None, f"{name} has holds and no record"
    host = decode_host(name, record)
    if host.health is Health.RETIRED:
        return
    if (placed := place_in(record)) is not None:
        batch.delete(schema.due_key(placed, name))
    saved = store.get(schema.CLOCK)
    now = wall if saved is None else max(wall, _CLOCK.unpack_from(saved)[0])
    host.set_health(Health.DEFERRED)
    host.due = host.ready = whole_microseconds(max(host.due, now + PARKED))
    batch.put(schema.deferred_key(name), b"")
    batch.put(schema.host_key(name), changed := encode_host(host))
    tally.replace(record, changed)
