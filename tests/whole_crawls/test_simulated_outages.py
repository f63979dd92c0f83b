"""Outages and dead hosts in minutes of a simulated crawl: hosts that never answer beside good ones,
and a network that fails."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from krowlspider.fetch.errors import ConnectTimeout, FirstByteTimeout
from tests.support.simulation import Answer, Clocks, Simulation, Web, in_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GOOD, DEAD = 40, 1_000
START = Clocks().monotonic


class Crowded(Web):
    """40 good hosts of 40 owners, and 200 domains of one owner in one address block.

    The first good host links to 1,000 hosts that never answer. The 200 domains answer until
    ``silent_from``. ``latency`` is that of the good hosts, ``down`` the time without network.
    """

    def __init__(self, *, silent_from: float = 0.0, latency: float = 0.1) -> None:
        super().__init__()
        self.silent_from = START + silent_from
        self.latency = latency
        self.down = (0.0, 0.0)

    def answer(self, host: str, path: str, now: float) -> Answer:
        from_, until = self.down
        if from_ <= now < until:
            return Answer(10.0, failure=ConnectTimeout)
        if host.startswith("dead"):
            return Answer(10.0, failure=ConnectTimeout)
        if host.startswith("evil") and now >= self.silent_from:
            return Answer(30.0, failure=FirstByteTimeout)
        latency = self.latency if host.startswith("good") else 0.1
        return Answer(latency, 404 if path == "/robots.txt" else 200)

    def address(self, host: str) -> str:
        number = int(host.partition(".")[0].strip("abcdefghijklmnopqrstuvwxyz"))
        if host.startswith("good"):
            return f"93.{number}.0.1"
        if host.startswith("evil"):
            return f"94.0.0.{number + 1}"
        return f"95.{number >> 8}.{number & 255}.1"

    def links(self, host: str, path: str) -> list[str]:
        if (host, path) == ("good0.test", "/0"):
            return [f"http://dead{number}.test/" for number in range(DEAD)]
        return []

    def good(self, since: float, until: float) -> Counter[str]:
        """Return the number of answers of good hosts in a period, by host."""
        return Counter(
            entry.host
            for entry in self.log
            if entry.host.startswith("good")
            and entry.status
            and START + since <= entry.end < START + until
        )


def pages(kind: str, hosts: int, each: int = 200) -> list[str]:
    return [f"http://{kind}{host}.test/{page}" for page in range(each) for host in range(hosts)]


def crawled(
    web: Crowded, folder: Path, act: Callable[[Simulation], None], **settings: object
) -> Simulation:
    async def run() -> Simulation:
        simulation = Simulation(web, in_memory(), folder, dict(settings))
        act(simulation)
        return simulation

    return asyncio.run(run())


@pytest.mark.slow
def test_links_to_hosts_that_never_answer_are_no_outage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They fill the slots, and hundreds fail without an answer in between."""
    web = Crowded()

    def act(simulation: Simulation) -> None:
        simulation.discover(pages("good", GOOD, 160))
        simulation.run_until(START + 90)
        assert not simulation.job.outages.is_out
        assert simulation.job.outages.begun == 0

    crawled(web, tmp_path, act, CONCURRENT_REQUESTS=64)
    asked = {entry.host for entry in web.log if entry.host.startswith("dead")}
    assert len(asked) > 100
    assert len(web.good(0, 20)) == GOOD
    assert "No host answers" not in caplog.text


@pytest.mark.slow
def test_silent_hosts_of_one_owner_are_no_outage(tmp_path: Path) -> None:
    """All 200 have answered before. The good hosts are slow, so none may answer for seconds."""
    web = Crowded(silent_from=10.0, latency=8.0)

    def act(simulation: Simulation) -> None:
        simulation.discover(pages("evil", 200, 40))
        simulation.run_until(START + 10)
        assert sum(entry.host.startswith("evil") for entry in web.log) > 1000
        simulation.discover(pages("good", 3)[3:])
        simulation.run_until(START + 100)
        assert simulation.job.outages.begun == 0

    crawled(web, tmp_path, act, KROWL_IP_CONCURRENCY=0)


def test_lost_network_is_noticed_and_good_hosts_probed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Hosts that never answered are due first, but hosts that have answered are probed instead."""
    caplog.set_level(logging.INFO)
    web = Crowded()
    web.down = (START + 15.0, START + 75.0)

    def act(simulation: Simulation) -> None:
        simulation.discover(pages("good", GOOD, 100)[1:])
        simulation.run_until(START + 14)
        simulation.discover([f"http://dead{number}.test/" for number in range(500)])
        simulation.run_until(START + 45)
        outages = simulation.job.outages
        assert outages.is_out
        ahead = simulation.job.frontier.now() - simulation.clocks.monotonic
        since = outages._network.since - ahead
        simulation.run_until(START + 85)
        assert not outages.is_out
        assert outages.begun == 1
        probes = [entry.host for entry in web.log if since < entry.start < START + 75]
        assert len(probes) > 5
        assert all(host.startswith("good") for host in probes)
        assert len(set(probes)) == len(probes)
        hosts = (
            simulation.job.frontier.schedule.cache.get(f"good{number}.test")
            for number in range(GOOD)
        )
        # Except for probes in flight when the network came back.
        assert sum(host.rate.errors for host in hosts) <= 2
        simulation.run_until(START + 105)

    crawled(web, tmp_path, act)
    assert len(web.good(80, 105)) == GOOD
    logged = [record.getMessage()[:20] for record in caplog.records]
    assert [line for line in logged if "answer" in line] == [
        "No host answers (con",
        "Hosts answer again, ",
    ]


def test_dead_seeds_are_blamed_and_end_the_outage(
    tmp_path: Path,
) -> None:
    """At first no host has answered, so the network may be the cause."""
    web = Crowded()

    def act(simulation: Simulation) -> None:
        names = [f"dead{number}.test" for number in range(150)]
        simulation.discover([f"http://{name}/" for name in names])
        simulation.run_until(START + 30)
        assert simulation.job.outages.is_out
        simulation.run_until(START + 1200)
        assert not simulation.job.outages.is_out
        assert simulation.job.outages.begun == 1
        hosts = (simulation.job.frontier.schedule.cache.get(name) for name in names)
        assert min(host.rate.errors for host in hosts) >= 1

    crawled(web, tmp_path, act)
