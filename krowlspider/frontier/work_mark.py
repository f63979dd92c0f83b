"""The mark of the page at work, which outlives a crash, and pages that killed the process.

The mark is in a file that is mapped into memory: the kernel keeps it when the process dies by a
signal, and writing costs no system call. Each thread has its own mark, so a page in flight gets no
strike.
"""

from __future__ import annotations

import os
from mmap import mmap
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.hosts.host import Host
from krowlspider.frontier.stopped import change_batch, drop_entries, read_host
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import host_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Store

_T = TypeVar("_T")

# The files of the marks in a crawl's folder: of the event loop, and of the thread that decodes.
MARK = "working"
THREAD_MARK = "decoding"
# One page of memory: the longest queue key has 2,062 bytes. The URL behind it may be cut.
_SIZE = 4096
_MAGIC = b"krowlspider mark 1\n"
MARK_AT = 64
# Length and checksum in front of the key: the process may die while it writes.
_HEAD = Struct(">HI")
# The last heartbeat of the event loop, for the watchdog, in the machine's byte order.
BEAT_AT = _SIZE - 8
_BEAT = Struct("=d")


def mark_of(key: bytes, url: str = "") -> bytes:
    """Return the mark of a queue entry, or of a host's record; ``url`` is for the watchdog."""
    mark = b"%b%b%b\0" % (_HEAD.pack(len(key), crc32(key)), key, url.encode())
    return mark[: BEAT_AT - MARK_AT]


# The mark between pages.
NOTHING = mark_of(b"")


def boot_id() -> bytes:
    """Return an id of this run of the machine; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except FileNotFoundError:
        return b""


def left_key(path: Path, boot: bytes) -> bytes:
    """Return the key in the mark that the last process left; empty for none or a torn one."""
    data = path.read_bytes() if path.exists() else b""
    # A mark of an earlier run of the machine is not what was at work when it stopped.
    if len(data) != _SIZE or data[:MARK_AT].rstrip(b"\0") != _MAGIC + boot:
        return b""
    length, checksum = _HEAD.unpack_from(data, MARK_AT)
    key = data[MARK_AT + _HEAD.size :][:length]
    return key if crc32(key) == checksum else b""


class WorkMark:
    """The mark of one thread, blank when it is created. ``now`` is the mark in the file.

    :raises OSError: the file cannot be written
    """

    def __init__(self, path: Path, boot: bytes):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Written whole: a full disk raises here, and would be a signal at a later write.
            os.ftruncate(descriptor, _SIZE)
            os.pwrite(descriptor, (_MAGIC + boot).ljust(_SIZE, b"\0"), 0)
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

    def during(self, mark: bytes, do: Callable[..., _T], *args: Any) -> _T:
        """Call ``do`` under a mark, and return its result."""
        # As `put`, without its two calls: this runs for each step of the work on a page.
        after, self.now = self.now, mark
        self._map[MARK_AT : MARK_AT + len(mark)] = mark
        try:
            return do(*args)
        except SystemExit:
            # The process ends here: the mark stays.
            after = mark
            raise
        finally:
            self.now = after
            self._map[MARK_AT : MARK_AT + len(after)] = after

    def beat(self, now: float) -> None:
        """Write a heartbeat, in seconds of the monotonic clock; inf lasts for good."""
        self._beat = max(self._beat, now)
        _BEAT.pack_into(self._map, BEAT_AT, self._beat)

    def close(self) -> None:
        """Blank the file, and write nothing to it any more: the next process may own it."""
        self.put(NOTHING)
        self._map = bytearray(_SIZE)


# One death may be a kill from outside that met the page by chance; three are not.
POISON_STRIKES = 3


def strike(store: Store, key: bytes) -> Entry | None:
    """Count a strike against the entry that a dead process was working on, and return the entry.

    With enough strikes it moves to the poison range. Return None if ``key`` is that of a host, or
    of an entry that is not queued any more. Call this before a new `WorkMark` blanks the file: a
    death in between counts a strike twice, and the other order would lose it.
    """
    saved = store.get(key) if key and not schema.is_record(key) else None
    if saved is None:
        return None
    name = host_in(key)
    entry = entry_of(key, saved)
    entry.strikes += 1
    if entry.strikes < POISON_STRIKES:
        batch = store.batch(sync=True)
        batch.put(key, entry.encode(name))
    else:
        batch = change_batch(store)
        batch.put(free_place(store, key), entry.encode(name))
        drop_entries(store, read_host(store, name) or Host(name), [key], "poison", batch)
    batch.write()
    return entry


def is_poison(entry: Entry) -> bool:
    """Return whether an entry has enough strikes to be set aside."""
    return entry.strikes >= POISON_STRIKES


def free_place(store: Store, key: bytes) -> bytes:
    """Return the key of a queue entry in the poison range, or the next free one."""
    # A lane of retries restarts at its first sequence, so an earlier entry may have the key.
    place = schema.POISON + key[len(schema.QUEUE) :]
    while store.get(place) is not None:
        place = place[:-8] + (int.from_bytes(place[-8:], "big") + 1).to_bytes(8, "big")
    return place
