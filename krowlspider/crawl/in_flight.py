"""Requests in flight: popped from the frontier and not yet over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krowlspider.archive.write.capture import FetchNote
    from krowlspider.fetch.memory import FetchMemory
    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.robots.fetch import RobotsFetch


@dataclass(slots=True, eq=False)
class InFlight:
    """One request in flight: for a leased page, or for a robots.txt.

    ``wait`` is set by the politeness middleware: seconds from the end of the request to the next
    request of the host. The host's delay is the least.
    ``rest`` has the same unit; it is charged for event loop time that the host's pop took.
    ``failure`` is the reason for which the page is dropped, unless it is queued again.
    ``resting`` keeps it out for minutes or a day.
    ``blameless``: neither the host nor the page caused the failure.
    ``unpopped``: the page is back in its queue. ``turned_back``: nothing was sent.
    ``note`` is written to the archive when the request is over.
    ``mark`` is the crash mark of the page (`page_mark`), empty until it is made.
    ``memory`` counts the bytes of the answer.
    """

    host: Host
    url: str
    lease: Lease | None = None
    robots_fetch: RobotsFetch | None = None
    wait: float = 0.0
    rest: float = 0.0
    failure: str | None = None
    resting: bool = False
    blameless: bool = False
    unpopped: bool = False
    turned_back: bool = False
    note: FetchNote | None = None
    mark: bytes = b""
    memory: FetchMemory | None = None
