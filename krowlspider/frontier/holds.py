"""Hosts that hold the event loop: the second time, a host is set aside for a day, with all that is
queued of it.

The watchdog notes each hold of more than five seconds in a file; the next start counts what is
there. A host that is set aside is out of the heap like one that is parked, and its URLs stay
queued: after the day it is tried again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from krowlspider.frontier import schema
from krowlspider.frontier.hosts import PUT_OFF, Host, State
from krowlspider.frontier.schema import whole_microseconds
from krowlspider.frontier.tally import Tally
from krowlspider.politeness.pace import PARKED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from krowlspider.frontier.store import Batch, Store

# The notes' file in a crawl's folder: a JSON object a line, ``host`` and ``url``.
NOTES = "holds"
# Once may be the machine's doing.
_TIMES = 2
# The job clock of the last commit, in front of its record.
_CLOCK = Struct(">d")


@dataclass(slots=True)
class Hold:
    """How many ``times`` a host has held the event loop, the last with ``url``, empty where it was
    none of its pages;
    ``aside`` when it is set aside for that."""

    host: str
    times: int = 0
    url: str = ""

    @property
    def aside(self) -> bool:
        return self.times >= _TIMES


def hold_of(store: Store, name: str) -> Hold:
    """What is known of a host's holds."""
    saved = store.get(schema.hold_key(name))
    return Hold(name) if saved is None else Hold(name, **json.loads(saved))


def settle_holds(store: Store, notes: Path, wall: float) -> list[Hold]:
    """Count the holds that were noted, set aside the hosts that have enough; return what is known
    of each that was noted.
    ``wall`` is now in epoch seconds. To be called before anything is popped.

    They are on disk, in one synced batch, before the notes are removed: a death between the two
    counts them twice.
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
    try:
        lines = notes.read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            said = json.loads(line)
            yield str(said["host"]), str(said["url"])
        except (ValueError, TypeError, KeyError):
            # Cut by a power loss or a full disk: the next hold is noted again.
            continue


def _set_aside(store: Store, name: str, wall: float, batch: Batch, tally: Tally) -> None:
    """Take a host out of the heap for a day, as `HostTurns.put_off` does."""
    record = store.get(schema.host_key(name))
    assert record is not None, f"{name} has holds and no record"
    host = Host.decode(name, record)
    if host.state is State.RETIRED:
        return
    if host.placed is not None:
        batch.delete(schema.due_key(host.placed, name))
    saved = store.get(schema.CLOCK)
    now = wall if saved is None else max(wall, _CLOCK.unpack_from(saved)[0])
    host.become(State.DEAD)
    host.turn = PUT_OFF
    host.due = host.ready = whole_microseconds(max(host.due, now + PARKED))
    batch.put(schema.put_off_key(name), b"")
    batch.put(schema.host_key(name), changed := host.encode())
    tally.replace(record, changed)
