"""Asks to other nodes: each is for one robots.txt on a host that another node owns.

The owner fetches that URL alone, when its host is due, and answers what it found there. The node
that asked follows redirects, so they may lead from owner to owner.
"""

from __future__ import annotations

import secrets
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.hosts.host import RobotsFetch
    from krowlspider.politeness.robots import RobotsRecord

# Seconds until an owner is asked again, which then answers at least that the fetch waits; and the
# asks in a row without any answer after which the robots.txt counts as unreachable.
ASK_AGAIN = 30.0
ASKS_MAX = 10


class Peers(Protocol):
    """The other nodes. Messages to them may be lost, or arrive twice."""

    def owner(self, host: str) -> str | None:
        """Return the other node that owns a host; None if this one does."""

    def ask(self, node: str, number: int, url: str) -> bool:
        """Ask a node for the robots.txt at ``url``; return False if it takes no messages now."""

    def answer(
        self,
        node: str,
        number: int,
        *,
        record: RobotsRecord | None = None,
        location: str | None = None,
    ) -> None:
        """Answer a node's ask: by a record, by the target of a redirect, or that it waits."""


class Alone:
    """The peers of a frontier that owns all hosts: there are none."""

    def owner(self, host: str) -> None:
        """Return None: this frontier owns the host."""

    def ask(self, node: str, number: int, url: str) -> bool:
        return False

    def answer(self, node: str, number: int, **_: object) -> None: ...


class Ask(Struct, eq=False):
    """An ask to ``node``, last sent at ``sent``; ``waiting`` are the robots fetches that need it.

    ``number`` is random, so that only who was asked can answer. ``unanswered`` counts how often it
    was sent since the last answer.
    """

    node: str
    number: int
    url: str
    sent: float
    unanswered: int = 1
    waiting: list[RobotsFetch] = field(default_factory=list)


class Asks:
    """The asks that have no final answer. ``now`` returns the job clock in seconds."""

    def __init__(self, peers: Peers, now: Callable[[], float]):
        self._peers = peers
        self._now = now
        self._by_url: dict[str, Ask] = {}
        self._by_number: dict[int, Ask] = {}
        # Robots fetches that wait, by the host of their URL.
        self._waiting: Counter[str] = Counter()

    def waiting_at(self, host: str) -> int:
        return self._waiting[host]

    def add(self, robots_fetch: RobotsFetch, owner: str) -> None:
        """Ask the owner of a robots fetch's URL, once for all robots fetches of that URL."""
        url = robots_fetch.url
        ask = self._by_url.get(url)
        if ask is None:
            ask = Ask(owner, secrets.randbits(52), url, self._now())
            self._by_url[url] = ask
            self._by_number[ask.number] = ask
            self._peers.ask(owner, ask.number, url)
        ask.waiting.append(robots_fetch)
        self._waiting[host_of(url)] += 1

    def by_number(self, number: int) -> Ask | None:
        return self._by_number.get(number)

    def end(self, ask: Ask) -> list[RobotsFetch]:
        """End an ask, and return the robots fetches that waited for it."""
        del self._by_url[ask.url], self._by_number[ask.number]
        self._leave(ask.url, len(ask.waiting))
        return ask.waiting

    def withdraw(self, robots_fetch: RobotsFetch) -> bool:
        """Let a robots fetch wait no more; return whether it waited."""
        ask = self._by_url.get(robots_fetch.url)
        if ask is None or robots_fetch not in ask.waiting:
            return False
        if ask.waiting == [robots_fetch]:
            self.end(ask)
        else:
            ask.waiting.remove(robots_fetch)
            self._leave(ask.url, 1)
        return True

    def _leave(self, url: str, count: int) -> None:
        host = host_of(url)
        self._waiting[host] -= count
        if not self._waiting[host]:
            del self._waiting[host]

    def end_moved(self) -> list[RobotsFetch]:
        """End the asks to nodes that do not own the host any more; return who waited."""
        moved = [
            ask for ask in self._by_url.values() if self._peers.owner(host_of(ask.url)) != ask.node
        ]
        return [robots_fetch for ask in moved for robots_fetch in self.end(ask)]

    def repeat(self) -> list[RobotsFetch]:
        """Send the asks again that are due; end those without an answer, and return who waited."""
        now = self._now()
        given_up = []
        for ask in [each for each in self._by_url.values() if now >= each.sent + ASK_AGAIN]:
            if ask.unanswered >= ASKS_MAX:
                given_up += self.end(ask)
                continue
            ask.sent = now
            # A node that is dead or leaves cannot answer: it returns, or the host gets a new owner.
            ask.unanswered += self._peers.ask(ask.node, ask.number, ask.url)
        return given_up
