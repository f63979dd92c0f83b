"""Requests in flight, the decoding of their answers, and the turns of the event loop.

Decode the content codings of pages, and read their text. A cheap body is decoded immediately.
Others go to a thread, so that the event loop goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

from msgspec import Struct

from krowlspider.fetch.http.decode import Decoding
from krowlspider.frontier.store.schema import host_key
from krowlspider.frontier.work_mark import NOTHING, WorkMark, mark_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.archive.write.records import FetchNote
    from krowlspider.fetch.memory import FetchMemory
    from krowlspider.frontier.entry_queues import EntryQueues, Lease
    from krowlspider.frontier.hosts.host import Host, RobotsFetch
    from krowlspider.job.recrawl import Refetch
    from krowlspider.job.tracing import Trace


class End(Enum):
    """How a request has ended, as far as is known."""

    ANSWERED = "answered"
    """Nothing else is known: its page is done once the engine forgets the request."""
    FAILED = "failed"
    """Its page is dropped, unless the request is tried again."""
    FELL_BACK = "fell back"
    """A bare seed has no https: its http URL is queued in its place."""
    EXCUSED = "excused"
    """Neither host nor page is the cause: the page keeps its place in the queue."""
    EXCUSED_LAST = "excused, last"
    """The same, but the page goes behind the others of its host."""
    TURNED_BACK = "turned back"
    """Nothing was sent."""


EXCUSED = frozenset({End.EXCUSED, End.EXCUSED_LAST})


class InFlight(Struct, eq=False):
    """One request in flight: for a leased page, or for a robots.txt.

    The download handlers set ``note``, ``memory``, ``received`` and ``is_challenged``. Only its own
    methods and `Flights` change the rest.

    - ``lease``: of the page; None for a robots.txt, and once the page is back in its queue.
    - ``wait``: seconds from the end of the request to the next request of the host, at least.
    - ``end``: how it has ended.
    - ``failure``: the reason for which the page is dropped, unless it is queued again.
    - ``defers``: the host is out of the heap for minutes or a day.
    - ``stays``: the page stays queued for the next start when the request is over.
    - ``note``: written to the archive when the request is over.
    - ``memory``: counts the bytes of the answer in memory.
    - ``received``: bytes of the last answer.
    - ``trace``: its times, with KROWL_TRACES.
    - ``is_head``: a request by HEAD, before the GET of its page.
    - ``secrets``: lines of the request that the archive gets without their values.
    - ``redacted``: header fields whose values the archive does not get.
    - ``refetch``: row and conditions of a page that is fetched again; else None.
    - ``is_challenged``: it was not signed, and its host asks for a signature.
    """

    host: Host
    url: str
    lease: Lease | None = None
    robots_fetch: RobotsFetch | None = None
    wait: float = 0.0
    end: End = End.ANSWERED
    failure: str | None = None
    defers: bool = False
    stays: bool = False
    note: FetchNote | None = None
    memory: FetchMemory | None = None
    received: int = 0
    trace: Trace | None = None
    secrets: tuple[bytes, ...] = ()
    redacted: tuple[str, ...] = ()
    is_head: bool = False
    refetch: Refetch | None = None
    is_challenged: bool = False

    def mark(self, queues: EntryQueues) -> bytes:
        """Return the mark for the work on its page, or on the robots.txt of a host."""
        if self.lease is not None:
            return mark_of(queues.key_of(self.lease), self.url)
        if self.robots_fetch is not None:
            return mark_of(host_key(self.robots_fetch.host.name), self.url)
        return NOTHING

    def must_wait(self, seconds: float) -> None:
        """Have the next request of the host wait for at least so many seconds."""
        self.wait = max(self.wait, seconds)

    def put_off(self) -> None:
        """Have the host of an answered request deferred."""
        self.defers = True

    def fail(self, reason: str, end: End = End.FAILED, *, defers: bool = False) -> None:
        """Set how the request has failed, and whether its host is deferred."""
        self.end, self.failure, self.defers = end, reason, defers


# CPU seconds for which a body is decoded on the event loop. The step under way is finished, so the
# costliest codings may take 10 ms.
_ON_LOOP = 0.002


class Decoders:
    """Decodes bodies on the event loop, and costly ones in one thread.

    With one thread, hostile bodies wait for one another and delay no page that is decoded
    immediately. ``mark`` marks the page whose body is decoded on the event loop, ``thread_mark``
    the one in the thread.
    """

    def __init__(self, mark: WorkMark, thread_mark: WorkMark):
        self._mark = mark
        self._thread_mark = thread_mark
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decoder")

    async def decode(
        self,
        page: bytes,
        body: bytes,
        encodings: bytes,
        cap: int,
        memory: FetchMemory,
        *,
        cuts: bool = False,
    ) -> bytes:
        """Return the body of a page without its content codings.

        ``page`` is the page's mark (`InFlight.mark`). From now on ``memory`` counts the decoded
        body. ``cap`` is the most bytes that a coding may yield; with ``cuts``, the rest is left
        out.

        :raises TooLarge: as of `Decoding`
        :raises DecodeFailed: as of `Decoding`
        """
        decoding = Decoding(body, encodings, cap, cuts=cuts)
        if not self._mark.during(page, decoding.run, _ON_LOOP):
            loop = asyncio.get_running_loop()
            if memory.must_wait(cap):
                room = loop.create_future()
                memory.wait(cap, partial(_grant, room))
                await room
            memory.resize(memory.size + cap)
            await loop.run_in_executor(self._thread, self._thread_mark.during, page, decoding.run)
        memory.resize(len(decoding.body))
        return decoding.body

    async def digest(self, page: bytes, body: bytes, media_type: str) -> tuple[bytes, float]:
        """Return what `text_digest` returns for the decoded body of a page, in the thread, and the
        CPU seconds that it took there."""
        # Crawls that fetch no page again do not load it.
        from krowlspider.recrawl import text  # noqa: PLC0415

        def timed() -> tuple[bytes, float]:
            begun = thread_time()
            found = text.text_digest(body, media_type)
            return found, thread_time() - begun

        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._thread_mark.during, page, timed)

    def close(self) -> None:
        """Begin nothing more. A body that is being decoded ends within its CPU limit."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._thread_mark.close()


def _grant(room: asyncio.Future[None]) -> None:
    # The task that awaited it may have been cancelled meanwhile.
    if not room.done():
        room.set_result(None)


# Most answers, or requests, in one turn of the event loop.
AT_MOST = 16
# Seconds of a turn, by the clock, and its least number of answers: fewer would cost more CPU.
UNWATCHED = (0.025, 8)
# The same while somebody watches the crawl.
WATCHED = (0.012, 4)
# Answers in a turn while a client of the live page waits. Its call takes four turns.
FOR_CLIENTS = 1
# Turns after the last answer for which a client counts as watching.
WATCHED_TURNS = 100
# Turns over which their length is averaged.
_RECENT = 8
# Seconds of wall time until `cpu_clock` reads the time of its thread again.
_READ_AGAIN = 0.002


def cpu_clock() -> Callable[[], float]:
    """Return a clock of the CPU seconds of one thread, off by `_READ_AGAIN` at most.

    Wall time is added to the thread's time until that is read again: to read it is a system call,
    which takes ten times as long, and a page needs six readings.
    """
    read_at = cpu = 0.0

    def clock() -> float:
        nonlocal read_at, cpu
        elapsed = perf_counter() - read_at
        if elapsed < _READ_AGAIN:
            return cpu + elapsed
        cpu = thread_time()
        read_at = perf_counter()
        return cpu

    return clock


class LoopTurns:
    """The number of answers, or of requests, in one turn of the event loop: ``at_once``.

    A turn has fewer when the machine is busy or pages are costly, and fewer still while somebody
    watches.
    """

    def __init__(self) -> None:
        self.at_once = AT_MOST
        # Whether a client of the live page waits for an answer.
        self.is_awaited = False
        # How many more turns a client counts as watching.
        self._watched = 0
        # Sums of the last turns; older ones count ever less.
        self._seconds = WATCHED[0] * _RECENT
        self._answers = float(AT_MOST * _RECENT)

    def took(self, seconds: float, answers: int) -> None:
        """Learn from a turn with ``answers`` answers that took ``seconds``.

        While a client waits, pages are read in other turns than their answers pass in: such a turn
        says nothing.
        """
        if self.is_awaited:
            return
        self._seconds += seconds - self._seconds / _RECENT
        self._answers += answers - self._answers / _RECENT
        if self._watched:
            self._watched -= 1
        self.at_once = self._fitting()

    def serve(self, clients: int) -> None:
        """Let turns be short while so many clients wait for an answer, and a while after."""
        self.is_awaited = clients > 0
        self._watched = WATCHED_TURNS
        self.at_once = FOR_CLIENTS if clients else self._fitting()

    def _fitting(self) -> int:
        limit, at_least = WATCHED if self._watched else UNWATCHED
        fitting = limit * self._answers / max(self._seconds, 1e-9)
        return int(max(at_least, min(AT_MOST, fitting)))


class LoopThrottle:
    """Lets some callers pass in each turn of the event loop, first come, first served.

    A loop runs all that is ready before it looks at its timers and sockets again. Hundreds of
    answers immediately would hold it for a fifth of a second, thousands for more than a second.
    ``clock`` returns monotonic seconds, by which ``turns`` learns how long a turn is.
    """

    def __init__(self, turns: LoopTurns, clock: Callable[[], float]):
        self._turns = turns
        self._clock = clock
        self._began = 0.0
        self._most = self._left = turns.at_once
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._turning = False
        # The callers of `for_clients` that wait.
        self._held: deque[asyncio.Future[None]] = deque()

    async def __call__(self) -> None:
        """Return in a turn of the event loop that has room."""
        loop = asyncio.get_running_loop()
        if not self._turning:
            self._turning = True
            self._began = self._clock()
            loop.call_soon(self._turn)
        if self._left and not self._waiting:
            self._left -= 1
            return
        place = loop.create_future()
        self._waiting.append(place)
        await place

    async def for_clients(self) -> None:
        """Return at once, but one caller a turn while a client of the live page waits.

        For the work on an answer, which comes some turns after the answer has passed.
        """
        if not self._turns.is_awaited:
            return
        loop = asyncio.get_running_loop()
        if not self._held:
            loop.call_soon(self._release_one)
        place = loop.create_future()
        self._held.append(place)
        await place

    def _release_one(self) -> None:
        while self._held:
            place = self._held.popleft()
            if not place.done():
                place.set_result(None)
                break
        if self._held:
            asyncio.get_running_loop().call_soon(self._release_one)

    def _turn(self) -> None:
        before, self._began = self._began, self._clock()
        self._turns.took(self._began - before, self._most - self._left)
        self._most = self._left = self._turns.at_once
        while self._left and self._waiting:
            place = self._waiting.popleft()
            # A cancelled caller takes no room.
            if not place.done():
                self._left -= 1
                place.set_result(None)
        self._turning = bool(self._waiting) or self._left < self._most
        if self._turning:
            asyncio.get_running_loop().call_soon(self._turn)
