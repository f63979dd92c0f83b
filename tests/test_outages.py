"""Outages of our own side: nobody is blamed, and the crawl waits."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from krowlspider.fetch.dns import ResolverStats
from krowlspider.frontier.memory import MemoryStore
from krowlspider.outages import Outages
from krowlspider.politeness.outage import HOSTS, HOSTS_CERTAIN
from tests.crawling import Crawl as RealCrawl
from tests.crawling import write_seeds
from tests.fetch.nameserver import closed_port
from tests.frontier.conftest import World

if TYPE_CHECKING:
    from pathlib import Path


class Crawl:
    """A frontier, the figures of a resolver, and what is told of every request."""

    def __init__(self) -> None:
        self.world = World(MemoryStore)
        self.names = ResolverStats()
        self.outages = Outages(self.world.frontier, self.names)

    def fail(self, number: int, kind: str) -> bool:
        """A host fails; whether it is blameless. If not, it is struck as the middleware does."""
        host = self.world.frontier.host(f"h{number}.test")
        blameless = self.outages.failed(host, kind)
        if not blameless:
            self.world.frontier._rule.after_error(host.pace, 0.0)
        return blameless

    def errors(self) -> int:
        return sum(host.pace.errors for host in self.world.frontier.hosts.values())


@pytest.fixture
def crawl() -> Crawl:
    return Crawl()


@pytest.mark.parametrize(
    ("kind", "hosts"), [("connect_timeout", HOSTS), ("network_down", HOSTS_CERTAIN)]
)
def test_when_no_host_answers_the_crawl_pauses_and_those_who_were_blamed_are_forgiven(
    crawl: Crawl, kind: str, hosts: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    blameless = [crawl.fail(number, kind) for number in range(hosts)]
    assert blameless == [False] * (hosts - 1) + [True]
    assert crawl.errors() == 0
    assert 0 < crawl.outages.next_probe() <= 5
    assert crawl.fail(hosts, kind)
    crawl.outages.answered()
    assert crawl.outages.next_probe() == 0
    told = [
        record.getMessage() for record in caplog.records if record.name == "krowlspider.outages"
    ]
    assert told[0].startswith(f"No host answers ({kind})")
    assert told[1].startswith("Hosts answer again")
    assert len(told) == 2
    assert crawl.outages.begun == 1


def test_forgiven_errors_are_written_with_the_next_commit(crawl: Crawl) -> None:
    crawl.world.add("http://h0.test/")
    for number in range(HOSTS_CERTAIN):
        crawl.fail(number, "network_down")
        crawl.world.frontier._record_now(crawl.world.frontier.host(f"h{number}.test"))
    crawl.world.commit()
    crawl.world.crash()
    assert crawl.world.frontier.host("h0.test").pace.errors == 0


def test_dead_hosts_are_blamed_as_long_as_one_of_the_others_answers(crawl: Crawl) -> None:
    for number in range(5 * HOSTS):
        assert not crawl.fail(number, "connect_timeout")
        if number % (HOSTS // 2) == 0:
            crawl.outages.answered()
    assert crawl.outages.next_probe() == 0
    assert crawl.errors() == 5 * HOSTS


def test_name_servers_that_fail_are_not_the_hosts_fault_and_those_with_known_addresses_go_on(
    crawl: Crawl, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    blameless = []
    for number in range(HOSTS + 1):
        blameless.append(crawl.fail(number, "dns_timeout"))
        crawl.outages.answered()
    assert blameless == [False] * (HOSTS - 1) + [True, True]
    assert crawl.errors() == 0
    assert crawl.outages.next_probe() == 0
    crawl.names.answered += 1
    crawl.outages.answered()
    assert not crawl.fail(0, "dns_timeout")
    told = [record.getMessage()[:18] for record in caplog.records]
    assert told == ["No name is found (", "Names are found ag"]


def test_hosts_that_were_dead_before_are_no_outage_however_many(crawl: Crawl) -> None:
    """After a start, they are all that is due."""
    for number in range(2 * HOSTS):
        crawl.world.frontier.host(f"h{number}.test").pace.errors = 1
        assert not crawl.fail(number, "connect_timeout")
    assert crawl.outages.next_probe() == 0
    for number in range(HOSTS_CERTAIN):
        crawl.fail(number, "network_down")
    assert crawl.outages.next_probe() > 0


def test_a_request_that_goes_out_in_an_outage_is_the_probe(crawl: Crawl) -> None:
    assert crawl.fail(0, "dns_down")
    assert crawl.outages.next_probe() > 0
    crawl.outages._network.next_probe = 0.0
    assert crawl.outages.next_probe() == 0
    crawl.outages.sent()
    assert crawl.outages.next_probe() > 0


def test_want_of_descriptors_is_nobodys_fault(crawl: Crawl) -> None:
    assert crawl.fail(0, "local")
    assert crawl.outages.next_probe() == 0


def test_names_that_are_found_again_end_an_outage_that_showed_by_names(crawl: Crawl) -> None:
    assert crawl.fail(0, "dns_down")
    assert crawl.outages.paused
    crawl.names.answered += 1
    # The name servers say that there is no such host: they are there.
    crawl.fail(1, "dns_nxdomain")
    assert not crawl.outages.paused


def test_a_host_that_an_outage_parked_is_back(crawl: Crawl) -> None:
    """Nine errors of its own, and one of ours."""
    crawl.world.add("http://h0.test/")
    frontier = crawl.world.frontier
    host = frontier.pop_host()
    assert host is not None
    host.pace.errors = 9
    crawl.fail(0, "connect_timeout")
    frontier.put_off(host, 86_400.0)
    for number in range(1, HOSTS + 1):
        crawl.fail(number, "connect_timeout")
    assert host.pace.errors == 9
    crawl.world.clocks.pass_(0.25)
    assert frontier.pop_host() is host


@pytest.mark.slow
def test_without_name_servers_a_crawl_of_a_few_seeds_waits_and_blames_nobody(
    tmp_path: Path,
) -> None:
    """It goes on by probes, one every 5 s, where each host would be tried again every 10 s."""
    hosts = [f"h{number}.example" for number in range(12)]
    seeds = write_seeds(tmp_path / "seeds.txt", hosts)
    servers = f"127.0.0.1:{closed_port()}"
    settings = {"KROWL_DNS_SERVERS": servers, "KROWL_RESOLVE": None}
    crawl = RealCrawl(tmp_path / "job", arguments={"seeds": seeds}, settings=settings).start()
    crawl.wait_until(lambda: crawl.log.count(" | paused: no host answers") >= 20)
    crawl.interrupt()
    assert crawl.log.count("No host answers (dns_down)") == 1
    assert crawl.stats["krowl/frontier/queued"] == 12
    assert crawl.stats["krowl/frontier/put_off"] == 0
    assert crawl.stats["krowl/politeness/blameless_count"] <= 12 + 6
    assert not any(name.startswith("krowl/frontier/dropped_count") for name in crawl.stats)
