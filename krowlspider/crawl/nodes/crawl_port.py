"""The crawl of a node, as the code that talks to other nodes sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from krowlspider.cluster.ring.record import Counters
    from krowlspider.cluster.transport.message import Message
    from krowlspider.frontier.handover.arrival import Arrivals
    from krowlspider.frontier.handover.departure import Departures
    from krowlspider.frontier.outbox import Outbox


class CrawlPort(Protocol):
    """The members of `krowlspider.crawl.cluster_traffic.ClusterTraffic`, documented there.

    It cannot be imported here, because it needs the job, and the job has the node.
    """

    departures: Departures
    arrivals: Arrivals
    outbox: Outbox
    turn: int
    rests: Callable[[], bool]
    wake: Callable[[], None]
    fail: Callable[[Exception], None]
    commit: Callable[[], Awaitable[None]]
    hang_up: Callable[[], None]

    @property
    def left(self) -> int: ...

    @property
    def stays(self) -> int: ...

    def is_full(self) -> bool: ...

    def lacks_room(self) -> bool: ...

    async def take_in(self, messages: list[Message]) -> None: ...

    def take_back(self, found: Sequence[tuple[bytes, bytes]]) -> None: ...

    async def make_durable(self) -> None: ...

    def ring_changed(self) -> None: ...

    def activity(self) -> int: ...

    def figures(self) -> Counters: ...
