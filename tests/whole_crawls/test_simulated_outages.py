"""Whose fault it is, over minutes of a crawl in simulated time: hosts that never answer beside good
ones, and a network that goes."""

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

GOOD, DEAD, LINKS = 40, 3_000, 200
START = Clocks().monotonic


class Crowded(Web):
    """40 good hosts of 40 owners, of which the first links to 3,000 that never answer, and 200
    domains in one block of addresses that do until ``silent_from``. ``latency`` is that of the good
    ones, ``down`` when the network of the machine is."""

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
        """Answers of good hosts in that time, by host."""
        return Counter(
            entry.host
            for entry in self.log
            if entry.host.startswith("good")
            and entry.status
            and START + since <= entry.end < START + until
        )


def pages(kind: str, hosts: int) -> list[str]:
    return [f"http://{kind}{host}.test/{page}" for page in range(LINKS) for host in range(hosts)]


def crawled(
    web: Crowded, folder: Path, act: Callable[[Simulation], None], **settings: object
) -> Simulation:
    async def run() -> Simulation:
        simulation = Simulation(web, in_memory(), folder, dict(settings))
        act(simulation)
        return simulation

    return asyncio.run(run())


def test_links_to_hosts_that_never_answer_are_no_outage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They fill the slots, and fail by the hundred with no answer between."""
    web = Crowded()

    def act(simulation: Simulation) -> None:
        simulation.discover(pages("good", GOOD))
        simulation.run_until(START + 90)
        assert not simulation.job.outages.paused
        assert simulation.job.outages.begun == 0

    crawled(web, tmp_path, act, CONCURRENT_REQUESTS=64)
    asked = {entry.host for entry in web.log if entry.host.startswith("dead")}
    assert len(asked) > 100
    assert len(web.good(0, 20)) == GOOD
    assert "No host answers" not in caplog.text


def test_silent_hosts_of_one_owner_are_no_outage(tmp_path: Path) -> None:
    """All 200 of them answered before. The good ones are slow, so that none may answer for
    seconds."""
    web = Crowded(silent_from=20.0, latency=8.0)

    def act(simulation: Simulation) -> None:
        simulation.discover(pages("evil", 200))
        simulation.run_until(START + 20)
        assert sum(entry.host.startswith("evil") for entry in web.log) > 1000
        simulation.discover(pages("good", 3)[3:])
        simulation.run_until(START + 140)
        assert simulation.job.outages.begun == 0

    crawled(web, tmp_path, act, KROWL_IP_CONCURRENCY=0)


@pytest.mark.parametrize("dead", [0, 1000])
def test_lost_network_is_noticed_and_good_hosts_probed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, dead: int
) -> None:
    """Hosts that never answered, due before all others, are no probes as long as one that did is
    there."""
    caplog.set_level(logging.INFO)
    web = Crowded()
    web.down = (START + 30.0, START + 90.0)

    def act(simulation: Simulation) -> None:
        simulation.discover(pages("good", GOOD)[1:])
        simulation.run_until(START + 29)
        simulation.discover([f"http://dead{number}.test/" for number in range(dead)])
        simulation.run_until(START + 60)
        outages = simulation.job.outages
        assert outages.paused
        ahead = simulation.job.frontier.now() - simulation.clocks.monotonic
        since = outages._network.since - ahead
        simulation.run_until(START + 100)
        assert not outages.paused
        assert outages.begun == 1
        probes = [entry.host for entry in web.log if since < entry.start < START + 90]
        assert len(probes) > 5
        assert all(host.startswith("good") for host in probes)
        assert len(set(probes)) == len(probes)
        hosts = (
            simulation.job.frontier.schedule.cache.get(f"good{number}.test")
            for number in range(GOOD)
        )
        # But for probes that were on their way when it came back.
        assert sum(host.rate.errors for host in hosts) <= 2
        simulation.run_until(START + 140)

    crawled(web, tmp_path, act)
    assert len(web.good(95, 140)) == GOOD
    logged = [record.getMessage()[:20] for record in caplog.records]
    assert [line for line in logged if "answer" in line] == [
        "No host answers (con",
        "Hosts answer again, ",
    ]


def test_dead_seeds_are_blamed_and_end_the_outage(
    tmp_path: Path,
) -> None:
    """As nobody has answered, it may be the network at first."""
    web = Crowded()

    def act(simulation: Simulation) -> None:
        names = [f"dead{number}.test" for number in range(150)]
        simulation.discover([f"http://{name}/" for name in names])
        simulation.run_until(START + 30)
        assert simulation.job.outages.paused
        simulation.run_until(START + 1200)
        assert not simulation.job.outages.paused
        assert simulation.job.outages.begun == 1
        hosts = (simulation.job.frontier.schedule.cache.get(name) for name in names)
        assert min(host.rate.errors for host in hosts) >= 1

    crawled(web, tmp_path, act)
