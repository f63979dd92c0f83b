"""Requests in flight: popped from the frontier and not yet over."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from krowlspider.frontier.store.schema import host_key
from krowlspider.frontier.work_mark import NOTHING, mark_of

if TYPE_CHECKING:
    from krowlspider.archive.write.capture import FetchNote
    from krowlspider.crawl.recrawl import Asked
    from krowlspider.crawl.tracing import Trace
    from krowlspider.fetch.memory import FetchMemory
    from krowlspider.frontier.entry_queues import EntryQueues, Lease
    from krowlspider.frontier.hosts.host import Host, RobotsFetch


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

    The download handlers set ``note``, ``memory`` and ``received``. Only its own methods and
    `Flights` change the rest.

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
    - ``asked``: the conditions of a request for a page that is fetched again.
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
    asked: Asked | None = None

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

    def fail(self, reason: str, end: End = End.FAILED, *, defers: bool = False) -> None:
        """Set how the request has failed, and whether its host is deferred."""
        self.end, self.failure, self.defers = end, reason, defers
