"""Host records on disk: their format, sum and positions in the ring; and hosts that hold the
loop.

`HostPositions` finds hosts on disk by the positions of their domains in the ring of a cluster.
Hosts that another node owns are found within its ranges of positions, without a look at all others.
As they leave, these ranges hold only hosts that have come to them since.

`HostHolds` counts how often the pages of a host have held the event loop. On the second hold, the
host is set aside for a day. The watchdog writes each hold of more than five seconds to a file. The
next start counts the holds in it. A host set aside is out of the heap like a parked one, and its
URLs stay queued: after the day it is tried again.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.frontier.hosts.host import (
    DEFERRED,
    LANE_AT,
    LANES,
    SCHEDULED,
    Health,
    Host,
    HostQueue,
    Level,
    level_of,
)
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import TALLY, whole_microseconds
from krowlspider.frontier.store.store import Batch, Store, StoreError, records
from krowlspider.politeness.delay import PARKED, HostRate
from krowlspider.urls.canonical import domain_of, position_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

# Version, health; due and ready times; latency average, robots.txt delay, quiet answers, throttling
# and errors of the rate; entries queued, done and dropped.
_HEAD = Struct(">BBddffBBHIII")
# Follow the head where they are not 0: the host's origin, then its extras.
_NUMBER = Struct(">I")
_LEVEL = Struct(">iBII")
# Due time and queued entries in the head.
_PLACE = Struct(">2xd20xI")
_VERSION = 2
# Added to the version of a record that has them, and to that of a host that asks for signatures.
_HAS_ORIGIN = 1
_HAS_EXTRAS = 2
_ASKS_SIGNATURE = 4
_VERSIONS = range(_VERSION, _VERSION + _HAS_ORIGIN + _HAS_EXTRAS + _ASKS_SIGNATURE + 1)
_IN_LANE = 0xFFFFFFFF
_HEALTHS = tuple(Health)
_DEAD = Health.DEFERRED


def encode_host(host: Host) -> bytes:
    """Return the record of a host. It counts leased entries as queued: after a restart they are."""
    rate, queue, origin = host.rate, host.queue, host.shares.origin
    extras = queue.extras
    record = _HEAD.pack(
        _VERSION
        + (_HAS_ORIGIN if origin else 0)
        + (_HAS_EXTRAS if extras else 0)
        + (_ASKS_SIGNATURE if host.asks_signature else 0),
        host.health,
        host.due,
        host.ready,
        rate.ema,
        rate.floor,
        rate.good_answers,
        rate.throttling,
        rate.saved_errors,
        queue.pending,
        queue.done,
        queue.dropped,
    )
    if origin:
        record += _NUMBER.pack(origin)
    if extras:
        record += _NUMBER.pack(extras)
    for number, level in queue.levels.items():
        head = level.head
        for priority, sequence in queue.leased:
            if sequence < head and level_of(priority, sequence) == number:
                head = sequence
        record += _LEVEL.pack(number >> 8, number & LANES, head & _IN_LANE, level.tail & _IN_LANE)
    return record


def decode_host(name: str, record: bytes) -> Host:
    """Return the host that a record describes: deferred, scheduled or idle.

    :raises StoreError: the record is of another version
    """
    version, health, due, ready, *rest = _HEAD.unpack_from(record)
    ema, floor, good_answers, throttling, errors, queued, done, dropped = rest
    if version not in _VERSIONS:
        raise StoreError(
            f"host record of {name} has version {version}, not {_VERSIONS[0]} to {_VERSIONS[-1]}"
        )
    levels: dict[int, Level] = {}
    host = Host(
        name,
        health=_HEALTHS[health],
        rate=HostRate.restored(ema, floor, good_answers, throttling, errors),
        due=due,
        ready=ready,
        asks_signature=bool((version - _VERSION) & _ASKS_SIGNATURE),
        record=record,
        queue=HostQueue(levels, queued, [], done, dropped),
    )
    levels_at = _HEAD.size
    if (version - _VERSION) & _HAS_ORIGIN:
        (host.shares.origin,) = _NUMBER.unpack_from(record, levels_at)
        levels_at += _NUMBER.size
    if (version - _VERSION) & _HAS_EXTRAS:
        (host.queue.extras,) = _NUMBER.unpack_from(record, levels_at)
        levels_at += _NUMBER.size
    for at in range(levels_at, len(record), _LEVEL.size):
        priority, lane, head, tail = _LEVEL.unpack_from(record, at)
        start = lane << LANE_AT
        levels[priority << 8 | lane] = Level(start + head, start + tail)
    if health == _DEAD:
        host.state = DEFERRED
    elif queued:
        host.state = SCHEDULED
    return host


class HostFigures(NamedTuple):
    """What a record says of a host, without its queue.

    ``pages`` are done, ``latency`` is the average in seconds, ``errors`` counts those in a row, and
    ``queued`` has leased entries too.
    """

    pages: int
    dropped: int
    queued: int
    health: Health
    latency: float
    errors: int


def figures_in(record: bytes) -> HostFigures:
    """Return the figures of a record. It is many times as fast as `decode_host`."""
    version, health, *times = _HEAD.unpack_from(record)
    _, _, latency, _, _, _, errors, queued, pages, dropped = times
    if (version - _VERSION) & _HAS_EXTRAS:
        at = _HEAD.size + ((version - _VERSION) & _HAS_ORIGIN) * _NUMBER.size
        pages -= _NUMBER.unpack_from(record, at)[0]
    rate = HostRate.restored(0.0, 0.0, 0, 0, errors)
    return HostFigures(pages, dropped, queued, _HEALTHS[health], latency, rate.errors)


def queued_in(record: bytes) -> tuple[int, bool]:
    """Return how many entries a record counts, leased ones too, and whether the host is
    deferred. The rest of the record is not read."""
    return _PLACE.unpack_from(record)[1], record[1] == _DEAD


def rate_in(record: bytes) -> HostRate:
    """Return the rate of a record. The queue is not read."""
    return HostRate.restored(*_HEAD.unpack_from(record)[4:9])


def place_in(record: bytes) -> float | None:
    """Return the time under which a host with this record is in the heap on disk, in seconds of the
    job clock; None where it is not there, as without a record."""
    if not record or record[1] == _DEAD:
        return None
    due: float
    due, queued = _PLACE.unpack_from(record)
    return due if queued else None


_TALLY = Struct(">QQQ")


@dataclass(slots=True)
class Tally:
    """Totals over all hosts. On disk they change in the batches that change the records, so they
    agree whenever the process dies.

    - ``queued``: entries, leased ones too.
    - ``hosts``: hosts that have entries and are not deferred.
    - ``deferred``: entries of deferred hosts.
    """

    queued: int = 0
    hosts: int = 0
    deferred: int = 0

    @classmethod
    def read(cls, store: Store) -> Tally:
        """Return the tally on disk. Where a change by hand has removed it, count all host
        records."""
        if (saved := store.get(TALLY)) is not None:
            return cls(*_TALLY.unpack(saved))
        tally = cls()
        for _, record in records(store):
            tally.replace(b"", record)
        return tally

    def replace(self, old: bytes, new: bytes) -> None:
        """Count the new record of a host in place of the old one; empty for none."""
        if old:
            queued, aside = queued_in(old)
            self.queued -= queued
            if aside:
                self.deferred -= queued
            elif queued:
                self.hosts -= 1
        if new:
            queued, aside = queued_in(new)
            self.queued += queued
            if aside:
                self.deferred += queued
            elif queued:
                self.hosts += 1

    def put(self, batch: Batch) -> None:
        """Put the tally into the batch that has the records it counts."""
        if min(self.queued, self.hosts, self.deferred) < 0:
            # Negative totals are impossible: have the next start count anew.
            batch.delete(TALLY)
        else:
            batch.put(TALLY, _TALLY.pack(self.queued, self.hosts, self.deferred))


# Most hosts and ranges that are looked at for one list.
_STEP = 100
# Behind all positions.
_END = 2**64


class HostPositions:
    """An index of the hosts that have a record.

    It is made while a node runs: `begin`, then `add` for all records, then `finish`, from when on
    it ``is_complete``. Before `begin` nothing is written. Each process makes it anew, because
    commands change records without it. So an entry has the tag of the process that wrote it, and
    those of others are passed over.
    """

    def __init__(self, store: Store):
        self._store = store
        self._tag = os.urandom(8)
        self._is_kept = False
        self.is_complete = False

    def begin(self) -> None:
        """Note each new and each erased record from now on."""
        self._is_kept = True

    def finish(self) -> None:
        """Note that each record has its entry."""
        self.is_complete = True

    def put(self, name: str, batch: Batch) -> None:
        """Put the entry of a host into the batch of its first record."""
        if self._is_kept:
            batch.put(_key(name), self._tag)

    def delete(self, name: str, batch: Batch) -> None:
        """Put the removal of an entry into the batch that erases the record."""
        if self._is_kept:
            batch.delete(_key(name))

    def add(self, names: Iterable[str]) -> None:
        """Write the entries of some hosts."""
        batch = self._store.batch()
        for name in names:
            batch.put(_key(name), self._tag)
        batch.write()

    def within(self, ranges: Iterable[tuple[int, int]]) -> Iterator[list[str]]:
        """Yield the hosts within ranges of positions, in lists, which may be empty.

        A range is its first and its last position; they are in order. The index must be complete.
        """
        found = self._found(ranges)
        while step := list(islice(found, _STEP)):
            yield [name for name in step if name is not None]

    def _found(self, ranges: Iterable[tuple[int, int]]) -> Iterator[str | None]:
        """Yield the hosts, and None after each range.

        A read passes over removed entries up to the next one that is there. What lies in between
        is known to be empty then, and is not read again.
        """
        following = 0
        for first, last in ranges:
            if last >= following:
                end, following = schema.position_prefix(last), _END
                after = schema.position_prefix(first)
                for key, tag in self._store.items(schema.POSITION, after=after):
                    if key[: len(end)] > end:
                        following = int.from_bytes(key[1 : len(end)])
                        break
                    if tag == self._tag:
                        yield key[len(end) :].decode()
            yield None


def _key(name: str) -> bytes:
    return schema.position_prefix(position_of(domain_of(name))) + name.encode()


# The file of holds in a crawl's folder: one JSON object a line, with ``host`` and ``url``.
NOTES = "holds"
# A single hold may be the machine's fault.
_TIMES = 2
# The job clock at the last commit, in front of its record.
_CLOCK = Struct(">d")


@dataclass(slots=True)
class HostHolds:
    """The holds of one host. ``times`` counts them. ``url`` is the page of the last one; empty
    where it was none of the host's pages."""

    host: str
    times: int = 0
    url: str = ""

    @property
    def aside(self) -> bool:
        """Return whether the host is set aside for its holds."""
        return self.times >= _TIMES


def holds_of(store: Store, name: str) -> HostHolds:
    """Return the holds of a host, as the store has them."""
    saved = store.get(schema.hold_key(name))
    return HostHolds(name) if saved is None else HostHolds(name, **json.loads(saved))


def settle_holds(store: Store, notes: Path, wall: float) -> list[HostHolds]:
    """Count the holds in the file, and set aside the hosts that have enough. Return a `HostHolds`
    for each host in the file that the store knows. Call this before anything is popped.

    ``wall`` is the present time in epoch seconds. The holds are on disk, in one synced batch,
    before the file is removed: a death between the two counts them twice.
    """
    found: dict[str, HostHolds] = {}
    for name, url in _read(notes):
        if name in found or store.get(schema.host_key(name)) is not None:
            hold = found.setdefault(name, holds_of(store, name))
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
