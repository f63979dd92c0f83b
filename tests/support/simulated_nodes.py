"""The crawl of one web by several nodes, in simulated time.

Each node is a `Simulation`. They run in steps, and get the messages of the others between two.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.cluster.transport.posts import RobotsPost, decode_robots
from krowlspider.job.cluster_traffic import take_robots_message
from krowlspider.urls.canonical import domain_of, host_of
from tests.support.simulation import Simulation, in_memory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.simulation import Web

# Seconds of a step by default.
STEP = 0.25


@dataclass(eq=False)
class SimulatedNodes:
    """Nodes ``a``, ``b`` ... so many of them. Those in ``frozen`` neither crawl nor read.

    The others know that those in ``dead`` take no messages.
    """

    web: Web
    count: int
    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        names = [chr(ord("a") + number) for number in range(self.count)]
        self.ring = Ring(map(Member, names))
        # Messages sent so far, by sender.
        self.sent: dict[str, list[bytes]] = defaultdict(list)
        self.nodes = {name: self._node(name) for name in names}

    def _node(self, name: str) -> Simulation:
        folder = self.folder / name
        folder.mkdir()

        def owner(host: str) -> str | None:
            found = self.ring.owner(domain_of(host))
            return None if found == name else found

        post = RobotsPost(name, owner, lambda node: node not in self.dead, wall=lambda: 0.0)
        node = Simulation(
            self.web,
            in_memory(),
            folder,
            {"KROWL_SITEMAPS": False, **self.settings},
            may_fetch=lambda domain: self.ring.owner(domain) == name,
            peers=post,
        )
        post._wall = node.job.wall
        node.job.frontier.schedule.shares.divide(self.count)
        return node

    def seed(self, urls: Iterable[str]) -> None:
        """Give each node the URLs of its domains."""
        for url in urls:
            self.nodes[self.ring.owner(domain_of(host_of(url)))].discover([url])

    def run_for(self, seconds: float, step: float = STEP) -> None:
        """Run all nodes; ``step`` is the time in seconds that a message takes."""
        for _ in range(round(seconds / step)):
            for name, node in self.nodes.items():
                end = node.clocks.monotonic + step
                if name in self.frozen:
                    node.clocks.pass_(step)
                else:
                    node.run_until(end)
                    # A simulation commits only in longer steps.
                    node.job.commit_now()
            self._deliver()

    def _deliver(self) -> None:
        for name, node in self.nodes.items():
            post = node.peers
            assert isinstance(post, RobotsPost)
            for other in post.owners():
                if name in self.frozen or other in self.frozen:
                    continue
                keys, found = post.next(other, 10_000)
                self.sent[name] += found
                for data in found:
                    self.take(other, data)
                post.pushed(other, keys)
            if name not in self.frozen:
                node.job.robots_fetches.ask_again()

    def take(self, name: str, data: bytes) -> None:
        """Let a node take a message."""
        job = self.nodes[name].job
        take_robots_message(job.robots_fetches, decode_robots(data), job.wall())
