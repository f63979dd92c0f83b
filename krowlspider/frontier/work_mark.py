"""The mark of the page at work, in a file that outlives a crash of the process.

The file is mapped into memory: the kernel keeps it when the process dies by a signal, and writing
costs no system call. Each thread has its own mark, so a page in flight gets no strike.
"""

from __future__ import annotations

import os
from mmap import mmap
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable

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
