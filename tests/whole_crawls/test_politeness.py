"""A crawl of 500 hosts for minutes, with real delays, has no violation of politeness."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.urls.canonical import domain_of
from tests.mockweb import MockWeb
from tests.mockweb.audit import Adaptive, Crowd, by_address, violations
from tests.support.crawls import AnyWeb, crawl_of, page, pages
from tests.support.simulated_crawl import SimulatedCrawl, interrupted_when
from tests.support.simulated_loop import clocks
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mockweb import Entry

    # The log of the servers, and the times of kills.
    Crawled = tuple[list[Entry], list[float]]

DEFAULTS = {
    "KROWL_DELAY_MIN": 0.25,
    "KROWL_DELAY_FACTOR": 5,
    "KROWL_RETRY_DELAY": 30,
    "KROWL_COMMIT_INTERVAL": 1,
    "KROWL_IP_CONCURRENCY": 8,
}
LATENCY = 1.0
CRAWL_DELAY = 10.0
RULES = "User-agent: *\nDisallow: /no\n"
# Number of hosts by kind. Each has its own address, except the names that share one.
KINDS = {
    "steady": 300,
    "quick": 8,
    "busy": 40,
    "unavailable": 30,
    "dated": 20,
    "year": 20,
    "delayed": 20,
    "mute": 6,
    "broken": 20,
    "shared": 18,
    "together": 18,
}


def hosts() -> dict[str, str]:
    """Return the kind of each of the 500 hosts."""
    found = {}
    for row, (kind, count) in enumerate(KINDS.items(), 1):
        for number in range(count):
            address = f"127.{20 + row}.{number // 200}.{number % 200 + 1}"
            names = {"shared": f"h{number}.shared.test", "together": f"one{number}.test"}
            found[names.get(kind, address)] = kind
    assert len(found) == 500
    return found


def seeds_of(web: AnyWeb) -> list[str]:
    return [web.url(host, path) for host in hosts() for path in ("/1", "/no")]


def spec(now: float) -> list[dict[str, Any]]:
    pattern = {kind: rf"^127\.{20 + row}\." for row, kind in enumerate(KINDS, 1)}
    pattern |= {"shared": r"shared\.test$", "together": r"^one"}
    soon = formatdate(now + 60, usegmt=True)

    def chain(kind: str, **more: Any) -> dict[str, Any]:
        return {"host": pattern[kind], "trap": "chain", "latency": LATENCY, **more}

    def refusing(kind: str, **more: Any) -> dict[str, Any]:
        return {"host": pattern[kind], "first": 1, "latency": 0.1, "status": 503, **more}

    robots = page("/robots.txt", f"{RULES}Crawl-delay: {CRAWL_DELAY:.0f}\n")
    return [
        {"host": pattern["delayed"], **robots},
        {"host": pattern["broken"], "path": "/robots.txt", "status": 500},
        page("/robots.txt", RULES),
        refusing("busy", status=429, retry_after=20),
        refusing("unavailable"),
        refusing("dated", retry_after=soon),
        refusing("year", path="/2", retry_after=31_536_000),
        {"host": pattern["mute"], "latency": 1000},
        chain("quick", latency=0.01),
        *(chain(kind) for kind in KINDS if kind not in ("quick", "mute", "broken")),
    ]


def by_domain(entry: Entry) -> str:
    return domain_of(entry.host.rpartition(":")[0])


# Seconds of the simulated crawl and of the real one.
LONG, SHORT = 300.0, 120.0
# The ends of the processes, as shares of the whole time. The one at KILLED is a kill -9.
STOPS = (0.25, 0.5, 0.75, 1.0)
KILLED = 1


def simulated(tmp_path: Path) -> Crawled:
    with SimulatedWeb(spec=spec(clocks.wall())) as web:
        seeds, begun, deaths = seeds_of(web), clocks.now, []
        for number, stop in enumerate(STOPS):
            crawl = crawl_of(web, tmp_path, seeds, settings=DEFAULTS)
            assert isinstance(crawl, SimulatedCrawl)
            left = begun + stop * LONG - clocks.now
            if number == KILLED:
                crawl.run_until_killed(web, left)
                deaths.append(begun + stop * LONG)
            else:
                crawl.script = interrupted_when(left)
                crawl.run()
        return web.log(), deaths


def real(tmp_path: Path) -> Crawled:
    with MockWeb(spec=spec(time.time())) as web:
        seeds, begun, deaths = seeds_of(web), time.monotonic(), []
        for number, stop in enumerate(STOPS):
            crawl = crawl_of(web, tmp_path, seeds, settings=DEFAULTS).start()
            crawl.wait_until(lambda at=begun + stop * SHORT: time.monotonic() >= at)
            if number == KILLED:
                deaths.append(time.monotonic())
                crawl.kill()
            else:
                crawl.interrupt()
        return web.log(), deaths


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("crawled", "seconds", "adaptive"),
    [
        (simulated, LONG, Adaptive(5, 30)),
        # On a busy machine, server and crawler measure different latencies.
        (real, SHORT, None),
    ],
    ids=["simulated", "real"],
)
def test_a_crawl_of_500_hosts_has_no_violation(
    tmp_path: Path,
    crawled: Callable[[Path], Crawled],
    seconds: float,
    adaptive: Adaptive | None,
) -> None:
    """With two restarts and a kill."""
    entries, deaths = crawled(tmp_path)
    found = violations(
        entries,
        min_delay=lambda host: CRAWL_DELAY if host.startswith("127.27.") else 0.25,
        allowed=lambda _, path: path != "/no",
        crowds=[Crowd("domain", by_domain, 2), Crowd("address", by_address, 8)],
        adaptive=adaptive,
        deaths=deaths,
    )
    print(f"{len(entries)} requests in {entries[-1].end - entries[0].start:.0f} s")
    assert found == []
    assert entries[-1].end - entries[0].start > seconds - 30
    # A page every six seconds, without the time between two processes.
    kinds = hosts()
    asked = dict.fromkeys((host for host, kind in kinds.items() if kind == "steady"), 0)
    for entry in pages(entries):
        host = entry.host.rpartition(":")[0]
        asked[host] = asked.get(host, 0) + 1
    each = seconds / (LATENCY + 5 * LATENCY)
    steady = [count for host, count in asked.items() if kinds[host] == "steady"]
    assert 0.7 * each < min(steady) <= max(steady) <= each + len(STOPS)
