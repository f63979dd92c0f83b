"""Account for the bytes of bodies in memory, and keep large responses in files.

`Memory` counts the bytes of all bodies: received, decoded, read, or waiting for the archive. Over
``line``, bodies that are not small wait: reading from their sockets is paused. Over ``limit`` no
new request begins. The fetch that has waited longest still goes on until its page is over, so that
one always ends.

`Spills` keeps large responses in files without a name while they come, and loads their bodies
again. A thread writes the files, so a slow disk never holds the event loop. The kernel removes them
with the process, however it ends.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import FileIO
from math import inf
from mmap import ACCESS_READ, mmap
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from pathlib import Path

# Bytes that a fetch may take however full the account is, counted as received and again as its
# body. Ordinary pages never wait for large ones.
SMALL = 256 * 1024
# At most one part in this many of the limit is kept free for small fetches.
_FOR_SMALL = 4
# Bytes that a transfer is expected to add before the next check: one read of a socket, counted
# twice.
READ = 512 * 1024


class Memory:
    """Account of at most ``limit`` bytes, plus what is in progress when the limit is reached.

    That is one read of each of ``most`` fetches at a time, and one body. ``on_room`` is called when
    requests may begin again after `admits` has refused one. ``waits`` counts the times that a body,
    or the next request, had to wait.
    """

    def __init__(
        self, limit: float = inf, most: int = 1, on_room: Callable[[], None] = lambda: None
    ) -> None:
        self.limit = limit
        self.line = limit - min(limit / _FOR_SMALL, most * SMALL) if limit < inf else inf
        self.used = 0
        self.waits = 0
        self.keeps_out = False
        """Whether `admits` has refused a request and none may begin yet."""
        self._on_room = on_room
        # The bytes each fetch needs and the callback that resumes it; first come, first served.
        self._waiting: OrderedDict[FetchMemory, tuple[int, Callable[[], None]]] = OrderedDict()
        # The fetch that goes on without room.
        self._runner: FetchMemory | None = None

    def admits(self) -> bool:
        """Return whether a new request may begin. If not, ``on_room`` is called once it may."""
        if self.used <= self.limit:
            return True
        self.waits += not self.keeps_out
        self.keeps_out = True
        return False

    def grow(self, size: int) -> None:
        """Count ``size`` bytes put into memory. Call `shrink` when they are gone."""
        self.used += size

    def shrink(self, size: int) -> None:
        """Count ``size`` bytes as gone; fetches that wait go on as far as there is room."""
        self.used -= size
        if self._waiting or self.keeps_out:
            self._room_made()

    def _room_made(self) -> None:
        expected = self.used
        while self._waiting:
            fetch, (need, go_on) = next(iter(self._waiting.items()))
            expected += need
            if expected > self.line:
                if self._runner is not None:
                    break
                self._runner = fetch
            del self._waiting[fetch]
            go_on()
        if self.keeps_out and self.used <= self.limit:
            self.keeps_out = False
            self._on_room()


class FetchMemory:
    """The bytes that one fetch has in memory, from its first byte until its page is over.

    ``waited`` is true if it has waited for others and `has_waited` has not cleared that.
    ``loaded`` counts a body that was loaded from a file in an account of such bodies.
    """

    __slots__ = ("_account", "loaded", "size", "waited")

    def __init__(self, account: Memory) -> None:
        self._account = account
        self.size = 0
        self.waited = False
        self.loaded: FetchMemory | None = None

    def receive(self, size: int) -> None:
        """Count ``size`` received bytes twice: for the response and for its body."""
        self.size += 2 * size
        self._account.used += 2 * size

    def resize(self, size: int) -> None:
        """Count ``size`` bytes instead of those counted before."""
        before, self.size = self.size, size
        self._account.shrink(before - size)

    def must_wait(self, more: int = 0) -> bool:
        """Return whether the fetch must `wait` before it takes ``more`` bytes."""
        account = self._account
        is_full = account.used + more > account.line and self.size + more > SMALL
        return is_full and account._runner is not self

    def wait(self, need: int, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` when there is room for ``need`` bytes; perhaps immediately.

        One fetch goes on without room: the first in line, if no other does so already.
        """
        self.waited = True
        self._account.waits += 1
        self._account._waiting[self] = need, go_on
        self._account._room_made()

    def has_waited(self) -> bool:
        """Return whether the fetch waits now, or has waited since the last call."""
        waited, self.waited = self.waited, self in self._account._waiting
        return waited

    def stop_waiting(self) -> None:
        """Forget the callback of `wait`."""
        self._account._waiting.pop(self, None)

    def release(self) -> None:
        """Count all bytes of the fetch as gone."""
        self.stop_waiting()
        if self._account._runner is self:
            self._account._runner = None
        self.resize(0)
        if self.loaded is not None:
            self.loaded.release()


# Returns the bytes in the chunks of a chunked body.
Dechunk = Callable[[memoryview], bytes]

# Bytes of a response in memory from which it goes to a file.
SPILLED = 512 * 1024
# Bytes of one response that may wait to be written before reading from its socket is paused.
AHEAD = 128 * 1024
# Bytes of bodies from files that are in memory again for their callbacks, all together.
LOADED = 32 * 1024 * 1024
# One more than needed, so that a body is loaded while the disk lets a write wait.
_THREADS = 2


class _File:
    """A file without a name, closed with its last reference. Raises OSError."""

    def __init__(self, folder: Path):
        with TemporaryFile(dir=folder, buffering=0) as file:
            self.descriptor = os.dup(file.fileno())

    def append(self, data: bytes) -> None:
        written = os.write(self.descriptor, data)
        while written < len(data):
            written += os.write(self.descriptor, memoryview(data)[written:])

    def __del__(self) -> None:
        # Opening it may have failed.
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class StoredResponse(Struct, frozen=True, eq=False):
    """A response in a file: ``size`` bytes, of which the first ``head`` are not its body.

    ``body_size`` is without transfer coding; ``dechunk`` removes it from a chunked body.
    """

    file: _File
    size: int
    head: int
    body_size: int
    dechunk: Dechunk | None

    def mapped(self) -> tuple[memoryview, memoryview | bytes]:
        """Return the response, mapped into memory, and its body without transfer coding.

        Only a chunked body is copied. The mapping ends with the last reference to it.
        """
        response = memoryview(mmap(self.file.descriptor, self.size, access=ACCESS_READ))
        body = response[self.head :]
        return response, body if self.dechunk is None else self.dechunk(body)

    def body(self) -> bytes:
        """Return the body without transfer coding. Blocks on the disk."""
        if self.dechunk is not None:
            return bytes(self.mapped()[1])
        # Unlike a copy of the mapping, it lets other threads run.
        with FileIO(self.file.descriptor, closefd=False) as file:
            file.seek(self.head)
            return file.readall()


class Spill:
    """The file of a response that is still coming. All but `_append` is called on the event loop.

    ``written`` is called with the number of bytes that were written and are no longer in memory,
    ``failed`` with the error of the disk. Nothing is called after that.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        threads: ThreadPoolExecutor,
        folder: Path,
        written: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._threads = threads
        self._folder = folder
        self._on_written = written
        self._on_failure = failed
        self._pieces: list[bytes] = []
        self._size = 0
        self._unwritten = 0
        self._then: Callable[[], None] | None = None
        # Only a thread uses it, one at a time, until all is written.
        self._file: _File | None = None

    @property
    def is_behind(self) -> bool:
        """Return whether so much waits for the disk that no more should be read."""
        return self._unwritten > AHEAD

    @property
    def is_awaited(self) -> bool:
        """Return whether reading, or the end of the response, waits for the disk now."""
        return self._then is not None

    def write(self, pieces: list[bytes]) -> None:
        """Append bytes of the response; never blocks."""
        size = sum(map(len, pieces))
        is_idle = not self._unwritten
        self._pieces += pieces
        self._size += size
        self._unwritten += size
        if is_idle and size:
            self._start()

    def when_written(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all is written; perhaps immediately. It replaces an earlier one."""
        if self._unwritten:
            self._then = then
        else:
            self._then = None
            then()

    def stored(self, head: int, body_size: int, dechunk: Dechunk | None) -> StoredResponse:
        """Return the whole response, once all is written."""
        assert self._file is not None
        return StoredResponse(self._file, self._size, head, body_size, dechunk)

    def _start(self) -> None:
        pieces, self._pieces = self._pieces, []
        job = self._loop.run_in_executor(self._threads, self._append, pieces)
        job.add_done_callback(self._settle)

    def _append(self, pieces: list[bytes]) -> int:
        if self._file is None:
            self._file = _File(self._folder)
        for piece in pieces:
            self._file.append(piece)
        return sum(map(len, pieces))

    def _settle(self, job: asyncio.Future[int]) -> None:
        if job.cancelled():
            return
        error = job.exception()
        if error is not None:
            self._on_failure(error)
            return
        size = job.result()
        self._unwritten -= size
        self._on_written(size)
        if self._pieces:
            self._start()
        elif self._then is not None:
            then, self._then = self._then, None
            then()


class Spills:
    """Large responses in files in ``folder``.

    Bodies that were loaded take at most ``loaded`` bytes, and one more of any size; others wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path, loaded: int = LOADED):
        self._loop = loop
        self._folder = folder
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="spills")
        self._loaded = Memory(loaded)

    def begin(
        self, written: Callable[[int], None], failed: Callable[[BaseException], None]
    ) -> Spill:
        return Spill(self._loop, self._threads, self._folder, written, failed)

    async def load(self, stored: StoredResponse, memory: FetchMemory, *, waits: bool) -> bytes:
        """Return the body of a stored response, once there is room; with ``waits`` false, at once.

        ``memory`` counts the body from now on, and its release makes room for others. Raises
        OSError.
        """
        size = stored.body_size
        place = memory.loaded = FetchMemory(self._loaded)
        if waits and place.must_wait(size):
            room = self._loop.create_future()
            place.wait(size, partial(_grant, room))
            await room
        place.resize(size)
        memory.resize(size)
        return await self._loop.run_in_executor(self._threads, stored.body)

    async def close(self) -> None:
        """Finish what is being written or loaded, and end the threads."""
        await asyncio.to_thread(self._threads.shutdown)


def _grant(room: asyncio.Future[None]) -> None:
    # The task that awaited it may have been cancelled meanwhile.
    if not room.done():
        room.set_result(None)
