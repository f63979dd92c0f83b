"""Copy a frontier of format 1, 2 or 3 into a new store of the present format.

How the older formats differ from the present one, which `schema` describes:

- Formats 1 to 3 keep host records under ``h`` and the host, apart from the queues.
- Formats 1 and 2 have one identity in each seen mark, which is still valid.
- Format 1 has other host records and queue entries: without lanes, due times and strikes.
"""

from __future__ import annotations

import struct
from contextlib import closing
from dataclasses import dataclass
from shutil import rmtree
from typing import TYPE_CHECKING

import plyvel

from krowlspider.errors import error_text
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.hosts.host import Health, Host, HostQueue, Level, level_of
from krowlspider.frontier.hosts.record import decode_host, encode_host
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.disk import sync
from krowlspider.frontier.store.store import LevelStore, StoreError, check_room
from krowlspider.politeness.delay import HostRate

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.frontier.store.store import Store

# Keys of the formats before 4; the present format has other values under this one.
_HOST = b"h"
# Left out: the next start counts these anew, as after a crash.
_COUNTED = (schema.CLEAN, schema.TALLY, schema.LOAD)
# Changes in one batch: about 1 MB.
_BATCH = 10_000
# Format 1. Of an entry: flags, depth, redirects, retries, throttling, length of the URL.
_ENTRY = struct.Struct(">BHBBBH")
_BARE = 1
# Of a host record: version, flags; due time, latency average, robots.txt delay; throttling, errors;
# entries queued, done and dropped. Then for each priority: priority, first and next sequence.
_RECORD = struct.Struct(">BBdddHHQQQ")
_RECORD_VERSION = 1
_DEFERRED = 1
_LEVEL = struct.Struct(">iQQ")


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied: numbers of hosts, queued URLs and seen marks."""

    hosts: int
    queued: int
    marks: int


def copy_frontier(source: Path, target: Path, number: int) -> Copied:
    """Copy a frontier of format ``number`` into a new folder, durably.

    If an earlier copy was cut short, what it left in ``target`` is removed first.

    :raises StoreError: the frontier cannot be read, or there is no room
    :raises OSError: the disk failed
    """
    rmtree(target, ignore_errors=True)
    check_room(source, "migrate")
    try:
        with closing(LevelStore(source)) as old, closing(LevelStore(target, create=True)) as new:
            copied = _copy(old, new, number)
            new.flush()
        sync(target)
        sync(target.parent)
    except BaseException as error:
        rmtree(target, ignore_errors=True)
        if not isinstance(error, (plyvel.Error, ValueError, struct.error)):
            raise
        raise StoreError(
            f"{source} cannot be migrated: {error_text(error)}:"
            " repair it with the version that made it, then migrate it"
        ) from error
    return copied


def _copy(old: Store, new: Store, number: int) -> Copied:
    """Copy a store of format ``number`` into an empty one, and make that durable.

    :raises ValueError: the old store has a host record of an unknown version
    """
    hosts = queued = marks = 0
    batch = new.batch()
    for count, (key, value) in enumerate(old.items(b""), 1):
        kind = key[:1]
        if kind == _HOST:
            name = key[1:].decode()
            host = _decode_first(name, value) if number == 1 else decode_host(name, value)
            batch.put(schema.host_key(name), encode_host(host))
            hosts += 1
        elif kind == schema.QUEUE:
            batch.put(key, _entry(value, schema.host_in(key)) if number == 1 else value)
            queued += 1
        elif kind not in _COUNTED:
            batch.put(key, value)
            marks += kind == schema.SEEN
        if count % _BATCH == 0:
            batch.write()
            batch = new.batch()
    batch.write()
    new.batch(sync=True).write()
    return Copied(hosts, queued, marks)


def _decode_first(name: str, record: bytes) -> Host:
    """Return the host of a record of format 1."""
    version, flags, due, ema, floor, throttling, errors, queued, done, dropped = (
        _RECORD.unpack_from(record)
    )
    if version != _RECORD_VERSION:
        raise ValueError(f"host record of {name} has version {version}, not {_RECORD_VERSION}")
    levels = {
        level_of(priority, head): Level(head, tail)
        for priority, head, tail in _LEVEL.iter_unpack(record[_RECORD.size :])
    }
    health = Health.ACTIVE if done else Health.NEW
    if throttling or errors:
        health = Health.BACKING_OFF
    if flags & _DEFERRED:
        health = Health.DEAD
    return Host(
        name,
        health=health,
        rate=HostRate(ema, floor, 0, min(throttling, 0xFF), errors),
        due=due,
        ready=due,
        queue=HostQueue(levels, queued, [], done, dropped),
    )


def _entry(data: bytes, host: str) -> bytes:
    """Return a queue entry of format 1 in the present format."""
    flags, depth, redirects, retries, throttling, length = _ENTRY.unpack_from(data)
    end = _ENTRY.size + length
    url, bare = data[_ENTRY.size : end].decode(), bool(flags & _BARE)
    entry = Entry(url, depth, redirects, retries, throttling, bare=bare, request=data[end:])
    return entry.encode(host)
