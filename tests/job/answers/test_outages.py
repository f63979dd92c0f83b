"""In an outage of our own network, no host is blamed, and the crawl waits."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pytest
from scrapy.exceptions import DownloadTimeoutError

from krowlspider.fetch.errors import ConnectTimeout
from krowlspider.fetch.resolver import ResolverStats
from krowlspider.frontier.shares import places_of
from krowlspider.job.answers.host_feedback import HostFeedback
from krowlspider.job.answers.outages import Outages, Way
from krowlspider.job.in_flight import InFlight
from krowlspider.politeness.outage import (
    ANSWERLESS,
    FORGIVEN_FOR,
    HOSTS,
    HOSTS_CERTAIN,
    NETWORK,
    SILENCE,
)
from krowlspider.politeness.silence import SilentServers
from tests.fetch.nameserver import closed_port
from tests.frontier.conftest import World
from tests.frontier.memory import MemoryStore
from tests.support.crawling import Crawl as RealCrawl
from tests.support.crawling import write_seeds

if TYPE_CHECKING:
    from pathlib import Path


class Crawl:
    """A frontier, resolver stats, and the outcomes of requests."""

    def __init__(self) -> None:
        self.world = World(MemoryStore)
        self.names = ResolverStats()
        self.stopped: list[str] = []
        self.outages = Outages(self.world.frontier, self.names, self.stopped.append)

    def answer(self, number: int, address: str = "") -> None:
        """Record an answer of a host, which updates its rate."""
        host = self.world.frontier.schedule.cache.get(f"h{number}.test")
        host.shares.address = places_of(address)[0] if address else ""
        self.outages.answered(host)
        self.world.frontier.schedule.rule.after_answer(host.rate, 0.1)

    def fail(self, number: int, kind: str, *, has_head: bool = False) -> bool:
        """Record a failure of a host. Return whether it is excused, not counted as an error."""
        host = self.world.frontier.schedule.cache.get(f"h{number}.test")
        blameless = self.outages.failed(host, kind, has_head=has_head)
        if not blameless:
            self.world.frontier.schedule.rule.after_error(host.rate, 0.0)
        return blameless

    def errors(self) -> int:
        return sum(host.rate.errors for host in self.world.frontier.schedule.cache.hosts.values())


@pytest.fixture
def crawl() -> Crawl:
    return Crawl()


@pytest.mark.parametrize(
    ("kind", "hosts"), [("connect_timeout", HOSTS), ("network_down", HOSTS_CERTAIN)]
)
def test_crawl_pauses_when_no_host_answers(
    crawl: Crawl, kind: str, hosts: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The errors of hosts during the outage are forgiven."""
    caplog.set_level(logging.INFO)
    blameless = [crawl.fail(number, kind) for number in range(hosts)]
    assert blameless == [False] * (hosts - 1) + [True]
    assert crawl.errors() == 0
    assert 0 < crawl.outages.next_probe() <= 5
    assert crawl.fail(hosts, kind)
    crawl.answer(hosts)
    assert not crawl.outages.is_out
    logged = [
        record.getMessage()
        for record in caplog.records
        if record.name == "krowlspider.job.answers.outages"
    ]
    assert logged[0].startswith(f"No host answers ({kind})")
    assert logged[1].startswith("Hosts answer again")
    assert len(logged) == 2
    assert crawl.outages.begun == 1


def test_forgiven_errors_are_written_with_the_next_commit(crawl: Crawl) -> None:
    crawl.world.add("http://h0.test/")
    for number in range(HOSTS_CERTAIN):
        crawl.fail(number, "network_down")
        crawl.world.frontier.schedule.cache.record_now(
            crawl.world.frontier.schedule.cache.get(f"h{number}.test")
        )
    crawl.world.commit()
    crawl.world.crash()
    assert crawl.world.frontier.schedule.cache.get("h0.test").rate.errors == 0


def test_dead_hosts_are_blamed_while_another_answers(crawl: Crawl) -> None:
    for number in range(5 * HOSTS):
        assert not crawl.fail(number, "connect_timeout")
        if number % (HOSTS // 2) == 0:
            crawl.answer(number)
    assert not crawl.outages.is_out
    assert crawl.errors() == 5 * HOSTS - 10


def test_failing_name_servers_blame_no_host(crawl: Crawl, caplog: pytest.LogCaptureFixture) -> None:
    """Hosts with known addresses are fetched."""
    caplog.set_level(logging.INFO)
    blameless = []
    for number in range(HOSTS + 1):
        blameless.append(crawl.fail(number, "dns_timeout"))
        crawl.answer(1000)
    assert blameless == [False] * (HOSTS - 1) + [True, True]
    assert crawl.errors() == 0
    assert not crawl.outages.is_out
    crawl.names.answered += 1
    crawl.answer(1000)
    assert not crawl.fail(0, "dns_timeout")
    logged = [record.getMessage()[:18] for record in caplog.records]
    assert logged == ["No name is found (", "Names are found ag"]


def test_hosts_that_were_dead_before_are_no_outage_however_many(crawl: Crawl) -> None:
    """After a start, only these may be due."""
    for number in range(2 * HOSTS):
        crawl.world.frontier.schedule.cache.get(f"h{number}.test").rate.errors = 1
        assert not crawl.fail(number, "connect_timeout")
    assert not crawl.outages.is_out
    for number in range(HOSTS_CERTAIN):
        crawl.fail(number, "network_down")
    assert crawl.outages.is_out


@pytest.mark.parametrize("kind", sorted(NETWORK.suspect))
def test_once_one_has_answered_hosts_never_reached_prove_nothing(crawl: Crawl, kind: str) -> None:
    crawl.answer(1000)
    crawl.world.clocks.pass_(ANSWERLESS)
    for number in range(5 * HOSTS):
        crawl.fail(number, kind)
    assert not crawl.outages.is_out
    for number in range(HOSTS):
        crawl.answer(number)
    crawl.world.clocks.pass_(ANSWERLESS)
    for number in range(HOSTS):
        crawl.fail(number, kind)
    assert crawl.outages.is_out


def test_no_server_rests_for_an_outage(crawl: Crawl) -> None:
    """The connect timeouts before it was noticed do not count."""
    frontier = crawl.world.frontier
    rule = frontier.schedule.rule
    silent = SilentServers(rule, lambda: 0.0)
    feedback = HostFeedback(
        *(frontier, crawl.outages, rule, time.time, lambda _: None),
        silent=silent,
        chance=lambda: 0.0,
    )
    error = DownloadTimeoutError()
    error.__cause__ = ConnectTimeout("x")
    for number in range(HOSTS):
        crawl.answer(number)
    crawl.world.clocks.pass_(ANSWERLESS)
    counted = []
    for number in range(HOSTS):
        host = frontier.schedule.cache.get(f"h{number}.test")
        in_flight = InFlight(host, f"https://h{number}.test/")
        feedback.failed(in_flight, error, 10.0, Way("", is_own=False))
        counted.append(silent.are_counted)
    assert crawl.outages.is_out
    assert counted == [*[True] * (HOSTS - 1), False]


def test_a_refusal_shows_that_there_is_a_network(crawl: Crawl) -> None:
    crawl.fail(1000, "connect_refused")
    crawl.world.clocks.pass_(ANSWERLESS)
    assert not any(crawl.fail(number, "connect_timeout") for number in range(5 * HOSTS))


def test_later_start_learns_nothing_from_unreached_hosts(crawl: Crawl) -> None:
    """Not even from the first failures."""
    crawl.world.frontier.counters["done"] = 1
    crawl.outages = Outages(crawl.world.frontier, crawl.names, crawl.stopped.append)
    assert not any(crawl.fail(number, "connect_timeout") for number in range(5 * HOSTS))
    for number in range(HOSTS):
        # Their records show that they answered before.
        host = crawl.world.frontier.schedule.cache.get(f"h{number}.test")
        host.rate.ema, host.rate.errors = 0.1, 0
    assert [crawl.fail(number, "connect_timeout") for number in range(HOSTS)][-1]


@pytest.mark.parametrize("kind", sorted(SILENCE))
def test_silence_of_unreached_hosts_proves_nothing(crawl: Crawl, kind: str) -> None:
    """Their connections were made."""
    assert not any(crawl.fail(number, kind) for number in range(5 * HOSTS))


def test_a_body_that_does_not_end_in_time_is_never_an_outage(crawl: Crawl) -> None:
    for number in range(5 * HOSTS):
        crawl.answer(number)
    crawl.world.clocks.pass_(ANSWERLESS)
    assert not any(
        crawl.fail(number, "total_timeout", has_head=True) for number in range(5 * HOSTS)
    )
    assert not crawl.outages.is_out


@pytest.mark.parametrize(
    ("address", "is_outage"),
    [
        ("93.184.215.{}", False),
        ("93.184.{}.1", True),
        ("10.0.0.{}", True),
        ("2606:2800:220:{}::1", False),
        ("2606:2800:{}::1", True),
    ],
)
def test_hosts_of_one_block_of_public_addresses_are_no_outage(
    crawl: Crawl, address: str, is_outage: bool
) -> None:
    for number in range(5 * HOSTS):
        crawl.answer(number, address.format(number))
    crawl.world.clocks.pass_(ANSWERLESS)
    for number in range(5 * HOSTS):
        crawl.fail(number, "connect_timeout")
    assert crawl.outages.is_out == is_outage


def test_probes_ask_one_host_of_each_owner(crawl: Crawl) -> None:
    """Hosts that did not fail come first."""
    for number in range(100, 105):
        crawl.answer(number, "94.0.0.1")
    for number in range(HOSTS + 3):
        crawl.answer(number, f"93.{number}.0.1")
    crawl.world.clocks.pass_(ANSWERLESS)
    for number in range(HOSTS):
        crawl.fail(number, "connect_timeout")
    well = ["h22.test", "h21.test", "h20.test", "h104.test"]
    struck = [f"h{number}.test" for number in reversed(range(HOSTS))]
    # The failure of the last probe is forgiven, and proves nothing.
    struck.remove("h19.test")
    order = ["h22.test", "h21.test", "h20.test", "h19.test", "h104.test", *struck]
    assert set(well) <= set(order[:5])
    assert list(crawl.outages.to_probe()) == order
    probes = crawl.outages.to_probe()
    assert [next(probes), next(probes)] == order[:2]
    assert next(crawl.outages.to_probe()) == order[2]


def test_outage_without_a_host_to_probe_is_given_up(
    crawl: Crawl, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise it would never end."""
    for number in range(HOSTS):
        crawl.answer(number)
    crawl.world.clocks.pass_(ANSWERLESS)
    for number in range(HOSTS):
        crawl.fail(number, "connect_timeout")
    crawl.world.clocks.pass_(FORGIVEN_FOR - 1)
    assert crawl.outages.next_probe() == 0
    crawl.outages.sent(crawl.world.frontier.schedule.cache.get("h0.test"))
    crawl.world.clocks.pass_(FORGIVEN_FOR - 1)
    crawl.outages.sent(crawl.world.frontier.schedule.cache.get("never.test"))
    assert crawl.outages.next_probe() > 0
    crawl.world.clocks.pass_(1)
    assert crawl.outages.next_probe() == 0
    assert not crawl.outages.is_out
    assert "No host that answered before was left to probe" in caplog.text


def test_an_outage_that_is_certain_is_never_given_up(crawl: Crawl) -> None:
    crawl.fail(0, "dns_down")
    for _ in range(10):
        crawl.world.clocks.pass_(FORGIVEN_FOR - 1)
        assert crawl.outages.next_probe() == 0
        assert crawl.fail(0, "dns_down")
    assert crawl.outages.begun == 1


def test_a_request_that_goes_out_in_an_outage_is_the_probe(crawl: Crawl) -> None:
    assert crawl.fail(0, "dns_down")
    assert crawl.outages.next_probe() > 0
    crawl.outages._network.next_probe = 0.0
    assert crawl.outages.next_probe() == 0
    crawl.outages.sent(crawl.world.frontier.schedule.cache.get("h0.test"))
    assert crawl.outages.next_probe() > 0


def test_want_of_descriptors_is_nobodys_fault(crawl: Crawl) -> None:
    assert crawl.fail(0, "local")
    assert not crawl.outages.is_out


def test_found_names_end_an_outage_of_name_servers(crawl: Crawl) -> None:
    assert crawl.fail(0, "dns_down")
    assert crawl.outages.is_out
    crawl.names.answered += 1
    # An answer that the name does not exist shows that the name servers work.
    crawl.fail(1, "dns_nxdomain")
    assert not crawl.outages.is_out


def test_a_host_that_an_outage_parked_is_back(crawl: Crawl) -> None:
    """It had nine errors of its own, and one by the outage."""
    crawl.world.add("http://h0.test/")
    frontier = crawl.world.frontier
    host = frontier.schedule.pop()
    assert host is not None
    host.rate.errors = 9
    crawl.fail(0, "connect_timeout")
    frontier.schedule.deferral.defer(host, 86_400.0)
    for number in range(1, HOSTS + 1):
        crawl.fail(number, "connect_timeout")
    assert host.rate.errors == 9
    crawl.world.clocks.pass_(0.25)
    assert frontier.schedule.pop() is host


@pytest.mark.slow
def test_without_name_servers_a_small_crawl_waits(
    tmp_path: Path,
) -> None:
    """It sends one probe every 5 s, instead of a retry of each host every 10 s."""
    hosts = [f"h{number}.example" for number in range(12)]
    seeds = write_seeds(tmp_path / "seeds.txt", hosts)
    servers = f"127.0.0.1:{closed_port()}"
    settings = {"KROWL_DNS_SERVERS": servers, "KROWL_RESOLVE": None}
    crawl = RealCrawl(tmp_path / "job", arguments={"seeds": seeds}, settings=settings).start()
    crawl.wait_until(lambda: crawl.log.count(" | paused: no host answers") >= 20)
    crawl.interrupt()
    assert crawl.log.count("No host answers (dns_down)") == 1
    assert crawl.stats["krowl/frontier/queued"] == 12
    assert crawl.stats["krowl/frontier/deferred"] == 0
    assert crawl.stats["krowl/politeness/blameless_count"] <= 12 + 6
    assert not any(name.startswith("krowl/frontier/dropped_count") for name in crawl.stats)
