"""The last answers of the hosts that a person looks at: in memory, and of these hosts alone."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.politeness.delay import DelayPolicy

# Hosts that are watched, and answers kept of each.
HOSTS_MAX = 16
ANSWERS_MAX = 60


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """A page of a host that is over. ``time`` is that of its commit in epoch seconds, ``delay`` the
    one of its host after it, in seconds, or None; the others are those of its last answer, 0
    without one."""

    time: float
    delay: float | None
    url: str
    outcome: str
    status: int
    size: int
    latency: float


class WatchedHosts:
    """Keeps the last answers of the hosts that were asked for last."""

    def __init__(self, policy: DelayPolicy):
        self._policy = policy
        self._answers: dict[str, deque[HostAnswer]] = {}

    def of(
        self, name: str, recent: Iterable[tuple[Lease, str | None]], now: float
    ) -> list[HostAnswer]:
        """Return the answers of a host, the oldest first, and watch it from now on.

        The first time, return those among ``recent``, without a delay: it is not known any more.
        """
        if (known := self._answers.pop(name, None)) is None:
            known = deque(maxlen=ANSWERS_MAX)
            for lease, dropped in recent:
                if lease.host.name == name:
                    known.append(_answer(lease, dropped, now, None))
            if len(self._answers) >= HOSTS_MAX:
                del self._answers[next(iter(self._answers))]
        # The last: it is forgotten last.
        self._answers[name] = known
        return list(known)

    def take(self, acknowledged: Iterable[tuple[Lease, str | None]], now: float) -> None:
        """Keep what is over of the hosts that are watched; ``now`` is epoch seconds."""
        if not self._answers:
            return
        for lease, dropped in acknowledged:
            host = lease.host
            if (known := self._answers.get(host.name)) is not None:
                delay = self._policy.of(host.name).delay(host.rate)
                known.append(_answer(lease, dropped, now, delay))


def _answer(lease: Lease, dropped: str | None, now: float, delay: float | None) -> HostAnswer:
    answer = lease.answer
    last = (0, 0, 0.0) if answer is None else (answer.status, answer.size, answer.latency)
    return HostAnswer(now, delay, lease.entry.url, dropped or "done", *last)
