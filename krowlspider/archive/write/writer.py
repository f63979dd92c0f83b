"""The archive's interface to the event loop: a thread compresses and writes the captures."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from krowlspider.archive.disk import ArchiveError, CaptureRefused, lock_directory, make_directory
from krowlspider.archive.tools.mend import MendReport, mend_folder
from krowlspider.archive.write.series import SeriesOptions, WarcSeries, WriterStats
from krowlspider.errors import lacks_room

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from krowlspider.archive.reading import Location, Synced
    from krowlspider.archive.write.composer import PayloadIndex
    from krowlspider.archive.write.records import Capture, FetchNote, Resource

_T = TypeVar("_T")
# Orders handed to the thread at a time, and the seconds that they wait for more at most.
# Each wake-up of the thread costs two thread switches and a wait for Python's lock.
_AT_ONCE = 32
_WAIT = 0.01
# Seconds between two tries to write on a full disk.
_TRY_AGAIN = 1.0
# Bytes in memory that wait for the writer before the engine stops popping: as many as may be in
# callbacks, because pages that become items wait there for their WARC offset.
QUEUE_BYTES = 64 * 1024 * 1024
# Responses in files may hold this part of ``queue_bytes`` in the queue. It is small because later
# captures, and each `sync`, wait until they are written.
_FILE_SHARE = 0.25


class _Order(Struct, eq=False):
    """A call for the thread to make. ``size`` and ``in_file`` are the bytes that wait for it, in
    memory and in a file."""

    act: Callable[[], Any]
    future: asyncio.Future[Any]
    size: int
    in_file: int = 0


class WarcWriter:
    """Writes captures to WARC files in ``directory``, in the order in which they are handed in.

    The writer is `full` when ``queue_bytes`` bytes wait in memory. Await `room` before a response
    in a file is handed in. The writer closes ``payloads``. ``on_pair`` is called in the thread with
    the seconds in which it has compressed and written the records of a capture.

    On a full disk the writer is ``stalled``: it retries every second, and new captures wait. This
    ends when there is room, or with `give_up`. Any other disk failure is final: from then on every
    future and `sync` raise ArchiveError. The open file stays as it is, and the next start mends it.

    :raises ValueError: the options cannot be used
    """

    def __init__(
        self,
        directory: Path,
        options: SeriesOptions,
        *,
        queue_bytes: int = QUEUE_BYTES,
        payloads: PayloadIndex | None = None,
        on_pair: Callable[[float], None] | None = None,
    ) -> None:
        self._series = WarcSeries(directory, options, payloads)
        self._payloads = payloads
        self._on_pair = on_pair
        self.directory = directory
        # Only the thread sets it.
        self.stalled = False
        self._given_up = threading.Event()
        self.queue_bytes = queue_bytes
        # Bytes of captures that are not yet written, in memory and in files.
        self.queued = 0
        self._in_files = 0
        # The callers that wait for `room`, in their order.
        self._in_line: deque[asyncio.Future[None]] = deque()
        self._waiting: list[_Order] = []
        self._timer: asyncio.TimerHandle | None = None
        # Orders for the thread, and whether they are the last.
        self._orders: SimpleQueue[tuple[list[_Order], bool]] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        # A daemon thread: the process may end without `close`; the next start then mends the files.
        self._thread = threading.Thread(target=self._run, name="warc-writer", daemon=True)
        self._closed: asyncio.Future[None] | None = None
        self._lock: int | None = None
        # The final failure, None before one. Only the thread uses it.
        self._cause: Exception | None = None

    def open(self, loop: asyncio.AbstractEventLoop, synced: Synced | None = None) -> MendReport:
        """Make the directory, mend the files of dead processes in it, start the thread. Blocks.

        ``synced`` is what the last process knew as durable, for `mend_folder`.

        :raises ArchiveError: another living writer uses the directory, or a mended file's name
            could not be made durable
        :raises OSError: the directory cannot be written
        """
        make_directory(self.directory)
        self._lock = lock_directory(self.directory)
        report = mend_folder(self.directory, synced=synced)
        self._loop = loop
        self._thread.start()
        return report

    @property
    def stats(self) -> WriterStats:
        """The counts of what was written; only the thread changes them."""
        return self._series.stats

    @property
    def open_lines(self) -> list[str]:
        """As of `WarcSeries`, in any thread."""
        return self._series.open_lines

    def lines_with(self, beginning: str) -> list[str]:
        """Return the index lines of the open file that start with ``beginning``."""
        return self._series.lines_with(beginning)

    @property
    def full(self) -> bool:
        """Return whether captures not yet written hold ``queue_bytes`` bytes of memory or more."""
        return self.queued >= self.queue_bytes

    async def room(self) -> None:
        """Wait until a capture of a response in a file may be handed in; then do so immediately.

        Without this wait, hundreds of large responses that end together would hold up all captures
        after them for seconds.
        """
        if self._has_room and not self._in_line:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_line.append(turn)
        await turn

    @property
    def _has_room(self) -> bool:
        return self._in_files < _FILE_SHARE * self.queue_bytes

    def _call_next(self) -> None:
        """Let the first caller in line for `room` hand in its capture. The next one follows in the
        next turn of the loop, or when there is room again."""
        while self._in_line and self._has_room:
            turn = self._in_line.popleft()
            # The task that awaited it may have been cancelled.
            if not turn.done():
                turn.set_result(None)
                assert self._loop is not None
                self._loop.call_soon(self._call_next)
                return

    def write(self, capture: Capture) -> asyncio.Future[Location]:
        """Hand a capture in; never blocks. The future returns where the response record lies.

        The capture is durable after the next `sync`. The future raises CaptureRefused when this
        capture cannot be a record, and ArchiveError when the archive has failed.

        :raises ArchiveError: the writer is not open
        """
        append = self._series.append if self._on_pair is None else self._append_timed
        return self._order(partial(append, capture), capture.size, capture.stored_size)

    def note(self, note: FetchNote) -> asyncio.Future[None]:
        """Hand in a note on a fetch. Raises the errors of `write`."""
        return self._order(partial(self._series.note, note), note.size)

    def resource(self, resource: Resource) -> asyncio.Future[None]:
        """Hand in a resource. Raises the errors of `write`."""
        return self._order(partial(self._series.resource, resource), len(resource.block))

    def begin_with(self, resource: Resource) -> asyncio.Future[None]:
        """Hand in a resource that waits for the first capture. Raises the errors of `write`."""
        return self._order(partial(self._series.begin_with, resource), len(resource.block))

    async def sync(self, then: Callable[[Synced | None], None] | None = None) -> Synced | None:
        """Return when everything handed in before is durable; while stalled, wait for room.

        Return what of the open file is durable; None if no file is open. ``then`` is called with it
        in the thread, before anything else is written. On a closed writer it does what `close`
        does.

        :raises ArchiveError: the archive has failed, or was never opened
        """
        if self._closed is not None:
            await self.close()
            return None
        return await self._order(partial(self._sync, then), immediately=True)

    async def close(self) -> None:
        """Write all waiting captures, finish the open file and end the thread. Idempotent.

        A full disk is a failure now, because `close` calls `give_up`.

        :raises ArchiveError: the archive has failed; raised by each call
        """
        if self._loop is None:
            return
        self.give_up()
        if self._closed is None:
            self._closed = self._order(self._series.close, immediately=True, last=True)
        try:
            await asyncio.shield(self._closed)
        finally:
            if self._closed.done():
                self._thread.join()
                if self._lock is not None:
                    os.close(self._lock)
                    self._lock = None

    def abandon(self) -> None:
        """End the thread, and leave the files as they are: for a start that failed. Blocks."""
        if self._thread.is_alive():
            self._orders.put(([], True))
            self._thread.join()
        elif self._payloads is not None:
            self._payloads.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def give_up(self) -> None:
        """Stop waiting for room: from now on a full disk is a failure."""
        self._given_up.set()

    def _order(
        self,
        act: Callable[[], _T],
        size: int = 0,
        in_file: int = 0,
        *,
        immediately: bool = False,
        last: bool = False,
    ) -> asyncio.Future[_T]:
        if self._loop is None or self._closed is not None:
            raise ArchiveError("the archive is not open")
        future: asyncio.Future[_T] = self._loop.create_future()
        self.queued += size
        self._in_files += in_file
        self._waiting.append(_Order(act, future, size, in_file))
        if immediately or len(self._waiting) >= _AT_ONCE:
            self._hand_over(last=last)
        elif self._timer is None:
            self._timer = self._loop.call_later(_WAIT, self._hand_over)
        return future

    def _hand_over(self, *, last: bool = False) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        self._orders.put((waiting, last))

    def _settle(self, outcomes: list[tuple[_Order, Any, Exception | None]]) -> None:
        for order, result, error in outcomes:
            self.queued -= order.size
            self._in_files -= order.in_file
            # The task that awaited it may have been cancelled, and the future with it.
            if order.future.done():
                continue
            if error is None:
                order.future.set_result(result)
            else:
                order.future.set_exception(error)
        self._call_next()

    # The methods below run in the thread.

    def _run(self) -> None:
        assert self._loop is not None
        last = False
        while not last:
            orders, last = self._orders.get()
            outcomes = [self._serve(order) for order in orders]
            if last:
                # A file is still open only after a failure, which the futures have raised.
                with suppress(OSError):
                    self._series.abandon()
                if self._payloads is not None:
                    self._payloads.close()
            self._loop.call_soon_threadsafe(self._settle, outcomes)

    def _serve(self, order: _Order) -> tuple[_Order, Any, Exception | None]:
        """Make the order's call; return its result, or the error that its future raises."""
        if self._cause is None:
            try:
                return order, self._act(order), None
            except CaptureRefused as error:
                return order, None, error
            except Exception as error:  # noqa: BLE001
                # Catch every error: if the thread died of it, all futures would wait for ever.
                self._cause = error
        failure = ArchiveError(f"the archive has stopped: {self._cause!r}")
        failure.__cause__ = self._cause
        return order, None, failure

    def _sync(self, then: Callable[[Synced | None], None] | None) -> Synced | None:
        synced = self._series.sync()
        if then is not None:
            then(synced)
        return synced

    def _append_timed(self, capture: Capture) -> Location:
        assert self._on_pair is not None
        begun = perf_counter()
        where = self._series.append(capture)
        self._on_pair(perf_counter() - begun)
        return where

    def _act(self, order: _Order) -> Any:
        """Return the result of the order's call; retry it while the disk is full.

        Raises any error of the call, want of room only after `give_up`.
        """
        while True:
            try:
                result = order.act()
            except OSError as error:
                if not lacks_room(error):
                    raise
                self.stalled = True
                if self._given_up.wait(_TRY_AGAIN):
                    raise
            else:
                self.stalled = False
                return result
