"""Ten minutes of random churn: five nodes that join, leave, die and hang, and servers that do.

``python -m tests.cluster.churn FIRST LAST`` runs the seeds from FIRST up to LAST, and prints the
faults of each.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from krowlspider.cluster.ring import live_members
from tests.support.simulated_cluster import ClusterWeb, SimulatedCluster, simulated_time

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = "abcde"
DURATION = 600.0
DELAY = 12.0
# Most seconds without a node: no other node may take its hosts over.
_AWAY = 25.0
# Seconds in which a node that is back renews its lease.
_SETTLED = 20.0
# Most seconds without a server.
_OUTAGE = 60.0
# URLs of the first step of a node that joins: it takes several.
_FIRST_URLS = 100


class _Churn:
    def __init__(self, cluster: SimulatedCluster, chance: random.Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.acts: Counter[str] = Counter()
        # What is done later, with its time.
        self._later: list[tuple[float, Callable[[], None]]] = []
        # Nodes that are frozen or dead.
        self._away: set[str] = set()

    def run(self) -> None:
        cluster, chance = self.cluster, self.chance
        end = cluster.now + DURATION
        for node in NODES[:2]:
            cluster.start(node)
        acts = {
            self.join: 3,
            self.leave: 2,
            self.kill: 2,
            self.freeze: 2,
            self.redis: 1,
            self.consul: 0.5,
            self.wipe: 0.2,
        }
        while cluster.now < end:
            self._pass(chance.uniform(2, 20))
            if not (cluster.running or self._away):
                break
            (act,) = chance.choices(list(acts), list(acts.values()))
            self.acts[act.__name__] += act() is None
        self._pass(_OUTAGE + _SETTLED)
        cluster.quiet_since = cluster.now
        # A node that was stopped when no other could take its hosts still has them.
        for node in cluster.pending_nodes:
            if node not in cluster.running:
                cluster.start(node)
        cluster.finish()

    def _pass(self, seconds: float) -> None:
        end = self.cluster.now + seconds
        while self._later and min(at for at, _ in self._later) <= end:
            first = min(self._later, key=lambda each: each[0])
            self._later.remove(first)
            self.cluster.run_for(first[0] - self.cluster.now)
            first[1]()
        self.cluster.run_for(end - self.cluster.now)

    def _do_later(self, seconds: float, act: Callable[[], None]) -> None:
        self._later.append((self.cluster.now + seconds, act))

    def _come_back(self, node: str, act: Callable[[str], object]) -> None:
        """Bring back a node after a while. It is not taken away before its lease is renewed."""

        def back() -> None:
            act(node)
            self._do_later(_SETTLED, lambda: self._away.remove(node))

        self._away.add(node)
        self._do_later(self.chance.uniform(0, _AWAY), back)

    def _some(self) -> str | None:
        """Return a node that works, and is not the last one."""
        running = self.cluster.running.items()
        found = [
            name
            for name, each in running
            if name not in self._away and each.has_joined and not each.asked_to_stop
        ]
        return self.chance.choice(found) if len(found) > 1 else None

    def join(self) -> bool | None:
        idle = [n for n in NODES if n not in self.cluster.running and n not in self._away]
        if not idle or not self.cluster.running:
            return False
        self.cluster.start(self.chance.choice(idle))
        return None

    def leave(self) -> bool | None:
        if (node := self._some()) is None:
            return False
        self.cluster.stop(node)
        return None

    def kill(self) -> bool | None:
        if (node := self._some()) is None:
            return False
        self.cluster.kill(node)
        self._come_back(node, self.cluster.start)
        return None

    def freeze(self) -> bool | None:
        if (node := self._some()) is None:
            return False
        self.cluster.freeze(node)
        self._come_back(node, self.cluster.thaw)
        return None

    def redis(self) -> None:
        server = self.cluster.redis[self.cluster.redis_url(self.chance.choice(NODES))]
        seconds = self.chance.uniform(0, _OUTAGE)
        if self.chance.random() < 0.5:
            server.freeze()
            self._do_later(seconds, server.thaw)
        else:
            server.is_down = True
            if self.chance.random() < 0.5:
                server.wipe()
            self._do_later(seconds, lambda: setattr(server, "is_down", False))

    def consul(self) -> bool | None:
        """Consul is gone for a while, but not while a node is away, or joins."""
        if self._away or not all(each.has_joined for each in self.cluster.running.values()):
            return False
        self.cluster.consul.is_down = True
        self._pass(self.chance.uniform(0, _OUTAGE))
        self.cluster.consul.is_down = False
        # Until leases are valid again.
        self._pass(_SETTLED)
        return None

    def wipe(self) -> bool | None:
        if self._away:
            return False
        self.cluster.consul.wipe()
        self._pass(_SETTLED)
        return None


def churn(seed: int, folder: Path) -> SimulatedCluster:
    """Return the cluster after its crawl, or 15 minutes after the churn at the latest."""
    return _run(seed, folder).cluster


def _run(seed: int, folder: Path) -> _Churn:
    web = ClusterWeb(40, 30, redirecting=7)
    chances = random.Random(seed)
    cluster = SimulatedCluster(web, folder, {"KROWL_DELAY_MIN": DELAY}, chances=chances)
    made = _Churn(cluster, random.Random(seed))
    with patch.object(live_members, "FIRST_URLS", _FIRST_URLS):
        made.run()
    return made


def main(first: int, last: int) -> None:
    for seed in range(first, last):
        with tempfile.TemporaryDirectory() as folder, simulated_time():
            made = _run(seed, Path(folder))
        cluster, faults = made.cluster, made.cluster.faults()
        print(
            f"seed {seed}: {len(cluster.pages())} pages in {cluster.now - 1000:.0f} s,"
            f" {dict(made.acts)}: {len(faults)} faults {faults[:5]}",
            flush=True,
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
