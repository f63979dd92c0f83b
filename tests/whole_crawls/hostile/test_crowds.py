"""Beside a thousand hosts that one page links to, 40 good hosts keep their rate (simulated)."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from krowlspider.fetch import errors
from tests.frontier.memory import MemoryStore
from tests.support.simulation import Answer, Simulation, Web

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.fetch.errors import FetchError

GOOD, PAGES, LATENCY = 40, 80, 0.1
# Second at which the hub links to its hosts, and the period in which good hosts must have their
# rate again.
STRUCK, SETTLED, END = 8.0, 20.0, 28.0


@dataclass(frozen=True)
class Attack:
    """The ``hosts`` that the hub links to, their ``domains``, ``addresses`` and answers."""

    hosts: int = 1_000
    domains: int = 500
    addresses: int = 500
    latency: float = 0.01
    status: int = 200
    failure: type[FetchError] | None = None
    retry_after: str | None = None


class Crowded(Web):
    def __init__(self, attack: Attack):
        super().__init__()
        self.attack = attack

    def answer(self, host: str, path: str, now: float) -> Answer:
        if host.startswith("good"):
            return Answer(LATENCY, 404 if path == "/robots.txt" else 200)
        attack = self.attack
        # Spread the answers: a burst of failures would look like an outage.
        latency = attack.latency * (0.8 + zlib.crc32(host.encode()) % 100 / 250)
        return Answer(
            latency, attack.status, failure=attack.failure, retry_after=attack.retry_after
        )

    def address(self, host: str) -> str:
        number = int(host.partition(".test")[0].rpartition(".")[2].lstrip("abdgo"))
        if host.startswith("good"):
            return f"10.1.{number}.1"
        number %= self.attack.addresses
        return f"10.{2 + number // 250}.{number % 250}.1"

    def links(self, host: str, path: str) -> list[str]:
        return []

    def rate(self, kind: str, begin: float, end: float) -> float:
        """Return the requests a second to a kind of hosts that ended in a period of the crawl."""
        begun = self.log[0].start
        asked = sum(
            begin <= entry.end - begun < end for entry in self.log if entry.host.startswith(kind)
        )
        return asked / (end - begin)


class Fresh(Web):
    """Hosts that answer in half a second, few in each address block."""

    def answer(self, host: str, path: str, now: float) -> Answer:
        return Answer(0.5, 404 if path == "/robots.txt" else 200)

    def address(self, host: str) -> str:
        number = int(host[1:-5]) * 101
        return f"{20 + number // 65_536}.{number // 256 % 256}.{number % 256}.1"

    def links(self, host: str, path: str) -> list[str]:
        return []


@pytest.mark.parametrize("via", [None, "hub.test"])
def test_a_crawl_that_knows_nobody_yet_uses_its_slots(tmp_path: Path, via: str | None) -> None:
    """600 hosts by seeds or links of one page: 1,200 requests of 0.5 s in 256 slots take 2.4 s."""

    async def run() -> Web:
        web = Fresh()
        crawl = Simulation(web, lambda _: MemoryStore(), tmp_path)
        crawl.discover((f"http://h{number}.test/" for number in range(600)), via=via)
        crawl.run_until(crawl.clocks.monotonic + 5.0)
        return web

    assert len(asyncio.run(run()).log) == 1200


def crawled(attack: Attack, folder: Path, hosts: int = GOOD) -> Crowded:
    """Crawl this many good hosts, and those of the attack from the second `STRUCK` on."""

    async def run() -> Crowded:
        return _crawl(attack, folder, hosts)

    return asyncio.run(run())


def _crawl(attack: Attack, folder: Path, hosts: int) -> Crowded:
    web = Crowded(attack)
    crawl = Simulation(web, lambda _: MemoryStore(), folder)
    good = [f"good{number}.test" for number in range(hosts)]
    crawl.discover(f"http://{host}/{page}" for host in good for page in range(PAGES))
    start = crawl.clocks.monotonic
    crawl.run_until(start + STRUCK)
    crawl.discover(
        (f"http://h{n}.bad{n % attack.domains}.test/" for n in range(attack.hosts)),
        via="www.hub.test",
    )
    crawl.run_until(start + END)
    return web


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(
            Attack(latency=10.0, failure=errors.ConnectionReset), id="dead", marks=pytest.mark.slow
        ),
        pytest.param(
            Attack(hosts=2_000, domains=256, addresses=16), id="fast", marks=pytest.mark.slow
        ),
        pytest.param(Attack(domains=256, addresses=32, latency=20.0), id="slow"),
    ],
)
def test_good_hosts_keep_their_rate_beside_a_thousand(tmp_path: Path, attack: Attack) -> None:
    web = crawled(attack, tmp_path)
    before, after = web.rate("good", 4.0, STRUCK), web.rate("good", SETTLED, END)
    assert before > 40
    assert after >= 0.9 * before
    # The hostile hosts are fetched too.
    assert web.rate("h", SETTLED, END) > 5


@pytest.mark.parametrize("latency", [0.01, 0.3])
def test_address_of_many_names_is_asked_ten_times_a_second(tmp_path: Path, latency: float) -> None:
    web = crawled(Attack(hosts=500, addresses=1, latency=latency), tmp_path, hosts=1)
    times = sorted(entry.start for entry in web.log if entry.host.startswith("h"))
    assert min(b - a for a, b in pairwise(times)) >= 0.1 - 1e-6
    assert 9 <= web.rate("h", SETTLED, END) <= 10.1


def test_a_retry_after_holds_for_all_names_of_an_address(tmp_path: Path) -> None:
    """Of the hour, a minute holds for all names. Then one is fetched, and answers so again."""
    attack = Attack(
        hosts=500, domains=250, addresses=1, latency=0.01, status=429, retry_after="3600"
    )
    web = crawled(attack, tmp_path)
    asked = Counter(entry.host for entry in web.log if entry.host.startswith("h"))
    assert len(asked) == 3
    assert web.rate("good", SETTLED, END) >= 0.9 * web.rate("good", 4.0, STRUCK)
