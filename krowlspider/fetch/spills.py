"""Keep large responses in files without a name while they come, and load their bodies again.

A thread writes the files, so a slow disk never holds the event loop. The kernel removes them with
the process, however it ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import FileIO
from mmap import ACCESS_READ, mmap
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from msgspec import Struct

from krowlspider.fetch.memory import FetchMemory, Memory

if TYPE_CHECKING:
    from pathlib import Path

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
