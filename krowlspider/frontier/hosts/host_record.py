"""The format of a host's record on disk."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from krowlspider.frontier.hosts.host import DEFERRED, SCHEDULED, Health, Host
from krowlspider.frontier.hosts.queue import LANE_AT, LANES, HostQueue, Level, level_of
from krowlspider.frontier.store.store import StoreError
from krowlspider.politeness.delay import HostRate

# Version, health; due and ready times; latency average, robots.txt delay, quiet answers, throttling
# and errors of the rate; entries queued, done and dropped.
_HEAD = Struct(">BBddffBBHIII")
# Follow the head where they are not 0: the host's origin, then its extras.
_NUMBER = Struct(">I")
_LEVEL = Struct(">iBII")
# Due time and queued entries in the head.
_PLACE = Struct(">2xd20xI")
_VERSION = 2
# Added to the version of a record that has them.
_HAS_ORIGIN = 1
_HAS_EXTRAS = 2
_VERSIONS = range(_VERSION, _VERSION + _HAS_ORIGIN + _HAS_EXTRAS + 1)
_IN_LANE = 0xFFFFFFFF
_HEALTHS = tuple(Health)
_DEAD = Health.DEFERRED


def encode_host(host: Host) -> bytes:
    """Return the record of a host. It counts leased entries as queued: after a restart they are."""
    rate, queue, origin = host.rate, host.queue, host.shares.origin
    extras = queue.extras
    record = _HEAD.pack(
        _VERSION + (_HAS_ORIGIN if origin else 0) + (_HAS_EXTRAS if extras else 0),
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
