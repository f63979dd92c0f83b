"""The archive as the event loop sees it: captures go in, a thread compresses and writes them."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from krowlspider.archive.disk import lock_directory, make_directory
from krowlspider.archive.errors import ArchiveError, CaptureRefused
from krowlspider.archive.mend import MendReport, mend_folder
from krowlspider.archive.series import SeriesOptions, WarcSeries, WriterStats
from krowlspider.errors import lacks_room

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from krowlspider.archive.capture import Capture, Location, NameAnswer, Note
    from krowlspider.archive.payloadindex import PayloadIndex

__all__ = ["SeriesOptions", "WarcWriter", "WriterStats"]

_T = TypeVar("_T")
# Orders after which they are reported to the loop with one wake-up: some 20 ms of the thread's work on 39 KB pages, so
# that `full` does not lag behind the thread.
_BATCH = 64
# Orders handed to the thread at a time, and seconds that they wait for more at most: each time that it is woken costs
# two switches of threads, and the wait for Python's lock.
_AT_ONCE = 32
_WAIT = 0.01
# Seconds between looks for room on a full disk.
_TRY_AGAIN = 1.0


@dataclass(slots=True, eq=False)
class _Order:
    """Something for the thread to do, for which ``size`` bytes wait in memory."""

    act: Callable[[], Any]
    future: asyncio.Future[Any]
    size: int


class WarcWriter:
    """Writes captures to WARC files in ``directory``, in the order in which they are handed in.

    ``queue_bytes`` are the bytes that may wait in memory before the writer calls itself full. ``payloads`` is the
    writer's from now on, which closes it.

    When the disk is full the writer is ``stalled``: it tries again every second, and what is handed in
    waits, until there is room or it is told to `give_up`. Any other failure of the disk is final: from
    then on every future, and `sync`, raises ArchiveError, so nothing more can be acknowledged, and
    the open file is left as it is for the next start to mend.

    Raises ValueError when the options cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        options: SeriesOptions,
        *,
        queue_bytes: int,
        payloads: PayloadIndex | None = None,
    ) -> None:
        self._series = WarcSeries(directory, options, payloads)
        self._payloads = payloads
        self.directory = directory
        # Kept by the thread.
        self.stalled = False
        self._given_up = threading.Event()
        self._queue_bytes = queue_bytes
        self._queued = 0
        self._waiting: list[_Order] = []
        self._timer: asyncio.TimerHandle | None = None
        self._orders: SimpleQueue[list[_Order] | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        # A daemon: a process that ends without `close` is mended like one that was killed.
        self._thread = threading.Thread(target=self._run, name="warc-writer", daemon=True)
        self._closed: asyncio.Future[None] | None = None
        self._lock: int | None = None
        # Why nothing more can be written. The thread's alone.
        self._cause: Exception | None = None

    def open(self, loop: asyncio.AbstractEventLoop) -> MendReport:
        """Make the directory, mend what dead processes left open in it, start the thread.

        Blocks, for some 13 s a gigabyte to mend; so call it before the crawl. Raises ArchiveError
        when another living writer uses the directory, OSError when it cannot be written.
        """
        make_directory(self.directory)
        self._lock = lock_directory(self.directory)
        report = mend_folder(self.directory)
        self._loop = loop
        self._thread.start()
        return report

    @property
    def stats(self) -> WriterStats:
        """Counts of what was written, kept by the thread."""
        return self._series.stats

    @property
    def full(self) -> bool:
        """Whether the captures handed in and not yet written hold ``queue_bytes`` or more."""
        return self._queued >= self._queue_bytes

    def write(self, capture: Capture) -> asyncio.Future[Location]:
        """Hand a capture in; never blocks. The future tells where it was written.

        Written is not durable: only `sync` makes it so. The future raises CaptureRefused when this
        capture cannot be a record. Raises ArchiveError when the writer is not open.
        """
        return self._order(partial(self._series.append, capture), capture.size)

    def note(self, note: Note) -> asyncio.Future[None]:
        """Hand in what is to be said about a fetch. The future ends, and this raises, as of `write`."""
        return self._order(partial(self._series.note, note), note.size)

    def name(self, answer: NameAnswer) -> asyncio.Future[None]:
        """Hand in an answer of the DNS. The future ends, and this raises, as of `write`."""
        return self._order(partial(self._series.name, answer))

    async def sync(self) -> None:
        """Return when everything handed in before is on the disk to stay, while stalled when there is
        room again. Raises ArchiveError."""
        if self._closed is not None:
            await self.close()
        else:
            await self._order(self._series.sync, at_once=True)

    async def close(self) -> None:
        """Write what waits, give the open file its final name, end the thread; idempotent.

        Raises ArchiveError, each time, when the archive has failed, for which want of room is enough
        now.
        """
        if self._loop is None:
            return
        self.give_up()
        if self._closed is None:
            self._closed = self._order(self._series.close, at_once=True)
            self._orders.put(None)
        try:
            await asyncio.shield(self._closed)
        finally:
            if self._closed.done():
                self._thread.join()
                self._unlock()

    def give_up(self) -> None:
        """Wait for room no longer: a full disk is a failure from now on."""
        self._given_up.set()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _order(
        self, act: Callable[[], _T], size: int = 0, *, at_once: bool = False
    ) -> asyncio.Future[_T]:
        if self._loop is None or self._closed is not None:
            raise ArchiveError("the archive is not open")
        future: asyncio.Future[_T] = self._loop.create_future()
        self._queued += size
        self._waiting.append(_Order(act, future, size))
        if at_once or len(self._waiting) >= _AT_ONCE:
            self._hand_over()
        elif self._timer is None:
            self._timer = self._loop.call_later(_WAIT, self._hand_over)
        return future

    def _hand_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        self._orders.put(waiting)

    def _settle(self, outcomes: list[Callable[[], None]], size: int) -> None:
        self._queued -= size
        for outcome in outcomes:
            outcome()

    # The rest runs in the thread.

    def _run(self) -> None:
        assert self._loop is not None
        last = False
        while not last:
            batch, last = self._next_batch()
            outcomes = [self._serve(order) for order in batch]
            if last:
                # Open still only after a failure, which has been told already.
                with suppress(OSError):
                    self._series.abandon()
                if self._payloads is not None:
                    self._payloads.close()
            self._loop.call_soon_threadsafe(
                self._settle, outcomes, sum(order.size for order in batch)
            )

    def _next_batch(self) -> tuple[list[_Order], bool]:
        """Wait for orders, take those that wait behind them; and whether they are the last."""
        batch: list[_Order] = []
        orders = self._orders.get()
        while orders is not None:
            batch += orders
            if len(batch) >= _BATCH:
                return batch, False
            try:
                orders = self._orders.get_nowait()
            except Empty:
                return batch, False
        return batch, True

    def _serve(self, order: _Order) -> Callable[[], None]:
        if self._cause is None:
            try:
                return partial(_resolve, order.future, self._act(order))
            except CaptureRefused as error:
                return partial(_reject, order.future, error)
            except Exception as error:  # noqa: BLE001
                # Whatever it is, a thread that died of it would leave all futures waiting for ever.
                self._cause = error
        failure = ArchiveError(f"the archive takes nothing more: {self._cause!r}")
        failure.__cause__ = self._cause
        return partial(_reject, order.future, failure)

    def _act(self, order: _Order) -> Any:
        """What the order's act returns, as soon as the disk has room for it."""
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


def _resolve(future: asyncio.Future[_T], result: _T) -> None:
    # Whoever awaited it may have been cancelled meanwhile, and the future with it.
    if not future.done():
        future.set_result(result)


def _reject(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
