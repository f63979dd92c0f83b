"""Requests in flight: popped from the frontier and not yet over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from krowlspider.archive.write.capture import FetchNote
    from krowlspider.crawl.recrawl import Asked
    from krowlspider.crawl.tracing import Trace
    from krowlspider.fetch.memory import FetchMemory
    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.robots.fetch import RobotsFetch


class InFlight(Struct, eq=False):
    """One request in flight: for a leased page, or for a robots.txt.

    The download handlers set ``note``, ``memory`` and ``received``. Only its own methods and
    `Flights` change the rest.

    - ``lease``: of the page; None for a robots.txt, and once the page is back in its queue.
    - ``wait``: seconds from the end of the request to the next request of the host, at least.
    - ``failure``: the reason for which the page is dropped, unless it is queued again.
    - ``defers``: the host is out of the heap for minutes or a day.
    - ``falls_back``: a bare seed has no https: its http URL follows.
    - ``is_blameless``: neither the host nor the page caused the failure.
    - ``goes_last``: the page goes behind the others of its host.
    - ``turned_back``: nothing was sent.
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
    failure: str | None = None
    defers: bool = False
    falls_back: bool = False
    is_blameless: bool = False
    goes_last: bool = False
    turned_back: bool = False
    stays: bool = False
    note: FetchNote | None = None
    memory: FetchMemory | None = None
    received: int = 0
    trace: Trace | None = None
    asked: Asked | None = None

    def must_wait(self, seconds: float) -> None:
        """Have the next request of the host wait for at least so many seconds."""
        self.wait = max(self.wait, seconds)

    def fail(self, reason: str, *, defers: bool = False) -> None:
        """Set the reason for which the page is dropped, and whether its host is deferred."""
        self.failure = reason
        self.defers = defers

    def excuse(self, seconds: float) -> None:
        """Count the failure against neither host nor page. The host waits for so many seconds."""
        self.is_blameless = True
        self.must_wait(seconds)
