"""Poison: a URL whose page kills the process again and again is set aside.

The page at work is marked in a small file that is mapped into memory. What is written there
survives the death of the process by a signal, a segfault or the kernel, and costs no system call.
The event loop runs one piece of code at a time, and so does the thread that decodes bodies. So one
mark for each suffices, and no page is blamed only for being in flight.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from zlib import crc32

from krowlspider.frontier.budget import DomainBudget
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.hosts.record import decode_host, encode_host, place_in
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import host_in
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Batch, Store

_P = ParamSpec("_P")
_T = TypeVar("_T")

# One death may be a kill from outside that met the page by chance; three are not.
POISON_STRIKES = 3
# The files of the marks in a crawl's folder: of the event loop, and of the thread that decodes.
MARK = "working"
THREAD_MARK = "decoding"
# One page of memory: a queue key has at most 14 bytes and the 2,048 characters of a URL. The URL
# that follows it in a mark is cut.
_SIZE = 4096
_MAGIC = b"krowlspider mark 1\n"
MARK_AT = 64
# Length and checksum, before the key: a process may die halfway through writing it.
_HEAD = Struct(">HI")
# Where the file has the last heartbeat of the event loop, for the watchdog: a float in the
# machine's byte order.
BEAT_AT = _SIZE - 8
_BEAT = Struct("=d")
_ROOM = BEAT_AT - MARK_AT


def mark_of(key: bytes, url: str = "") -> bytes:
    """Return the mark of a queue entry, which the file holds while work on its page goes on.
    ``url`` is for the watchdog's log.

    The key of a host record marks work for the host and none of its pages: no page is blamed for
    that.
    """
    mark = b"%b%b%b\0" % (_HEAD.pack(len(key), crc32(key)), key, url.encode())
    return mark[:_ROOM]


# The mark between pages.
NOTHING = mark_of(b"")


def boot_id() -> bytes:
    """Return an id of this run of the machine; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except FileNotFoundError:
        return b""


class WorkMark:
    """The mark of one crawl, blank when it is created. ``now`` is the mark that the file holds.

    :raises OSError: the file cannot be written
    """

    def __init__(self, path: Path, boot: bytes):
        blank = (_MAGIC + boot).ljust(_SIZE, b"\0")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Written whole, without a hole: a full disk raises here, and would be a signal later.
            os.ftruncate(descriptor, _SIZE)
            os.pwrite(descriptor, blank, 0)
            self._map: mmap | bytearray = mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)
        self.now = NOTHING
        self._beat = 0.0

    def put(self, mark: bytes) -> bytes:
        """Change the mark, and return the one before."""
        before, self.now = self.now, mark
        self._map[MARK_AT : MARK_AT + len(mark)] = mark
        return before

    def during(self, mark: bytes, do: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call ``do`` under the mark of a page, and return its result."""
        after = self.put(mark)
        try:
            return do(*args, **kwargs)
        except SystemExit:
            # The call ends the process: the mark stays.
            after = mark
            raise
        finally:
            self.put(after)

    def beat(self, now: float) -> None:
        """Write the event loop's heartbeat: ``now`` in seconds of the monotonic clock. With inf, it
        holds for good."""
        self._beat = max(self._beat, now)
        _BEAT.pack_into(self._map, BEAT_AT, self._beat)

    def close(self) -> None:
        """Leave the file blank. Code that still runs marks nothing after this: the next process may
        hold the file."""
        self.put(NOTHING)
        self._map = bytearray(_SIZE)


@dataclass(frozen=True, slots=True)
class Blame:
    """The page that the mark of the last process names. ``entry`` is the one at work when it died,
    with its strikes counted, if it is still queued or was set aside now. ``damaged`` means that the
    file cannot be read: no page is blamed."""

    entry: Entry | None = None
    damaged: bool = False

    @property
    def poisoned(self) -> bool:
        """Return whether the entry has enough strikes to be set aside."""
        return self.entry is not None and self.entry.strikes >= POISON_STRIKES


def blame(store: Store, path: Path, boot: bytes) -> Blame:
    """Count a strike against the page that a dead process was at work on. Return a `Blame`. Call
    this before anything is popped.

    The strike is on disk before a new `WorkMark` blanks the file. A process that dies between the
    two counts it twice. The other order would lose it, and a page that kills at once could do so
    for ever.
    """
    try:
        key = _left(path, boot)
    except ValueError:
        return Blame(damaged=True)
    if not key or schema.is_record(key):
        return Blame()
    return Blame(strike(store, key))


def _left(path: Path, boot: bytes) -> bytes:
    """Return the key that a process left in its mark. It is empty without a mark, and after the
    machine restarted: a power loss is no page's fault.

    :raises ValueError: the file is not a mark, or was cut or torn
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return b""
    if not data:
        # Created, and not yet written.
        return b""
    if len(data) != _SIZE or not data.startswith(_MAGIC):
        raise ValueError(f"{path} is not a mark")
    if data[len(_MAGIC) : MARK_AT].rstrip(b"\0") != boot:
        return b""
    length, checksum = _HEAD.unpack_from(data, MARK_AT)
    key = data[MARK_AT + _HEAD.size :][:length]
    if crc32(key) != checksum:
        raise ValueError(f"{path} is torn")
    return key


def strike(store: Store, key: bytes) -> Entry | None:
    """Count a strike against a queue entry, in its place. An entry with enough strikes moves to the
    poison range. All is one synced batch.

    Return the entry, or None when it is not queued any more.
    """
    saved = store.get(key)
    if saved is None:
        return None
    entry = entry_of(key, saved)
    entry.strikes += 1
    batch = store.batch(sync=True)
    if entry.strikes < POISON_STRIKES:
        batch.put(key, entry.encode(host_in(key)))
    else:
        _set_aside(store, key, entry, batch)
    batch.write()
    return entry


def _set_aside(store: Store, key: bytes, entry: Entry, batch: Batch) -> None:
    """Move an entry from its host's queue to the poison range. Host record and counters then have
    one entry less queued, and one more dropped."""
    batch.delete(key)
    name = host_in(key)
    batch.put(free_place(store, key), entry.encode(name))
    record = store.get(schema.host_key(name))
    assert record is not None, f"{name} has a queue entry and no record"
    host = decode_host(name, record)
    host.queue.queued -= 1
    host.queue.dropped += 1
    if not host.queue.queued and (placed := place_in(record)) is not None:
        batch.delete(schema.due_key(placed, name))
    batch.put(schema.host_key(name), encode_host(host))
    budget = DomainBudget(store, 0)
    if budget.count(domain_of(name)):
        budget.give_back(domain_of(name))
        budget.end_batch(batch)
    saved = store.get(schema.COUNTERS)
    counters: Counter[str] = Counter(json.loads(saved) if saved else {})
    counters["dropped/poison"] += 1
    batch.put(schema.COUNTERS, json.dumps(counters).encode())
    # The tally still counts the entry as queued: have the start count anew.
    batch.delete(schema.TALLY)


def free_place(store: Store, key: bytes) -> bytes:
    """Return the key of a queue entry in the poison range, or the next free one. A lane of retries
    begins again at its first sequence, so an earlier entry may have that key."""
    place = schema.POISON + key[len(schema.QUEUE) :]
    while store.get(place) is not None:
        place = place[:-8] + (int.from_bytes(place[-8:], "big") + 1).to_bytes(8, "big")
    return place
