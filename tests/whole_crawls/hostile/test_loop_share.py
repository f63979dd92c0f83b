"""Hosts that use much of the event loop rest for it, and others are fetched meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from krowlspider.politeness.loop_cost import RESTS, SHARE, LoopCost
from tests.frontier.memory import MemoryStore
from tests.support.crawls import AT_ONCE, crawl_of, dropped, page
from tests.support.simulated_web import SimulatedWeb
from tests.support.simulation import Answer, SimulatedJob, Simulation, Web

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.frontier.robots.gate import Verdict
    from krowlspider.urls.scope import AskedScope

GOOD = [f"good{number}.test" for number in range(20)]
LINKS = 1000
RULES = b"User-agent: *\nDisallow: /private\n"


class Beside(Web):
    """Endless sites, and hosts whose pages are mostly refused. Simulated."""

    def answer(self, host: str, path: str, now: float) -> Answer:
        return Answer(0.05, body=RULES if path == "/robots.txt" else b"")

    def address(self, host: str) -> str:
        return f"10.0.{sum(host.encode()) % 256}.{len(host)}"

    def links(self, host: str, path: str) -> list[str]:
        return [f"http://{host}/{int(path[1:]) + 1}"] if host in GOOD else []


class SlowJob(SimulatedJob):
    """A job in which each robots verdict on a URL of a bad host takes 0.2 s of the loop."""

    def _open(self, asked: AskedScope | None) -> None:
        super()._open(asked)
        verdict, clocks = self.robots.verdict, self._simulation.clocks

        def slowly(authority: str, url: str) -> Verdict:
            clocks.pass_(0.2 if "//bad" in authority else 0.0)
            return verdict(authority, url)

        self.robots.verdict = slowly  # type: ignore[method-assign]


class InterruptedJob(SimulatedJob):
    """A job in which other processes use the core for 20 ms during each robots verdict."""

    def _open(self, asked: AskedScope | None) -> None:
        super()._open(asked)
        self.cpu = lambda: 0.0
        verdict, clocks = self.robots.verdict, self._simulation.clocks

        def interrupted(authority: str, url: str) -> Verdict:
            clocks.pass_(0.02)
            return verdict(authority, url)

        self.robots.verdict = interrupted  # type: ignore[method-assign]


def crawled(
    folder: Path, bad: int, seconds: float, job: type[SimulatedJob] = SlowJob
) -> Counter[str]:
    """Crawl for ``seconds``. Return the pages fetched by host, and the numbers of the bad hosts'
    links refused and queued."""

    async def run() -> Counter[str]:
        folder.mkdir()
        settings = {"KROWL_SITEMAPS": False, "KROWL_IP_CONCURRENCY": 0}
        crawl = Simulation(Beside(), lambda _: MemoryStore(), folder, settings, job_class=job)
        names = [f"bad{number}.test" for number in range(bad)]
        for host in names:
            crawl.discover([f"http://{host}/private/{link}" for link in range(LINKS)])
        crawl.discover([f"http://{host}/1" for host in GOOD])
        crawl.run_until(crawl.clocks.monotonic + seconds)
        crawl.job.commit_now()
        asked = Counter(entry.host for entry in crawl.web.log if entry.path != "/robots.txt")
        asked["refused"] = crawl.scheduler.counted()["dropped/robots"]
        asked["queued"] = sum(
            crawl.job.frontier.schedule.cache.get(name).queue.queued for name in names
        )
        return asked

    return asyncio.run(run())


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    return crawled(tmp_path_factory.mktemp("alone") / "crawl", 0, 30.0)


@pytest.mark.parametrize("bad", [pytest.param(1, marks=pytest.mark.slow), 40])
def test_good_hosts_keep_their_rate_beside_slow_verdicts(
    tmp_path: Path, alone: Counter[str], bad: int
) -> None:
    beside = crawled(tmp_path / "beside", bad, 30.0)
    assert min(alone[host] for host in GOOD) > 50
    for host in GOOD:
        assert beside[host] >= 0.5 * alone[host]
    assert beside["refused"] > 0
    assert beside["refused"] + beside["queued"] == bad * LINKS


def test_no_host_rests_for_time_that_other_processes_took(tmp_path: Path) -> None:
    """A page takes two verdicts at most: 25 pages a second are possible."""
    asked = crawled(tmp_path / "interrupted", 0, 30.0, InterruptedJob)
    assert sum(asked[host] for host in GOOD) > 30 * 22


def test_no_host_has_more_than_three_per_cent_of_the_loop() -> None:
    cost, now, worked = LoopCost(), 1000.0, 0.0
    for _ in range(100):
        now += 0.02
        worked += 0.02
        now += cost.rest(0.02, now)
    assert worked / (now - 1000.0) == pytest.approx(1 / (1 + RESTS))


@pytest.mark.parametrize(("took", "count"), [(0.001, 10_000), (0.1, 100)])
def test_all_costly_turns_together_have_a_share_of_the_loop(took: float, count: int) -> None:
    """For any number of hosts, however little each of them uses."""
    cost, now = LoopCost(), 1000.0
    for _ in range(count):
        last = cost.rest(took, now)
    assert last == pytest.approx(count * took / SHARE, abs=1.1)


def test_a_host_rests_a_minute_at_most_for_what_others_took() -> None:
    cost, now = LoopCost(), 1000.0
    for _ in range(10_000):
        cost.rest(0.1, now)
    assert cost.rest(0.0005, now) <= 60.0


def test_refusals_of_an_ordinary_host_cost_it_no_rest() -> None:
    cost, now = LoopCost(), 1000.0
    for _ in range(1000):
        now += 0.005
        assert cost.rest(0.0005, now) == 0.0


def test_a_process_that_was_stopped_makes_no_host_rest_for_hours() -> None:
    assert LoopCost().rest(3600.0, 10_000.0) == RESTS


REPEATED = b"User-agent: *\n" * 17_000 + b"".join(b"Disallow: /%d\n" % n for n in range(20_000))
WILD = b"User-agent: *\n" + b"".join(
    b"Allow: /*%baab%b*%d\n" % (b"a" * 100, b"a" * 98, n) for n in range(2000)
)


def test_hostile_robots_txt_stall_no_crawl_and_are_named(tmp_path: Path) -> None:
    """One takes long to read. One takes long to match, and its host has many links."""
    links = "".join(f"<a href=/{'a' * 1000}aab{'a' * 900}{number}>x</a>" for number in range(50))
    spec = [
        {"host": "repeated.test", **page("/robots.txt", REPEATED.decode())},
        {"host": "wild.test", **page("/robots.txt", WILD.decode())},
        {"host": "wild.test", **page("/", links)},
        page("/robots.txt", "User-agent: *\nDisallow: /private"),
        page("/", "".join(f"<a href=/{number}>x</a>" for number in range(20))),
        page("^/", "x"),
    ]
    good = [f"good{number}.test" for number in range(10)]
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url(host) for host in ["repeated.test", "wild.test", *good]]
        crawl = crawl_of(web, tmp_path, seeds, settings=AT_ONCE).run()
        fetched = Counter(entry.host.partition(":")[0] for entry in web.log())
    assert all(fetched[host] == 22 for host in good)
    assert dropped(crawl)["robots_undecided"] == 50
    (named,) = (line for line in crawl.complaints if "too long to match" in line)
    assert "robots.txt of wild.test" in named
    assert crawl.longest_turn < 1
