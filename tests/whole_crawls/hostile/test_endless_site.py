"""An endless site fills neither the disk nor the queues of good hosts (simulated)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from krowlspider.frontier.limits import DOMAIN_SHARE
from tests.support.simulation import Answer, Simulation, Web, in_memory

if TYPE_CHECKING:
    from pathlib import Path

GOOD, PAGES, LINKS = 10, 40, 100
MAX = 200


class Endless(Web):
    """Good hosts with a hub each, and a site whose pages all link to new hosts and pages of it."""

    def answer(self, host: str, path: str, now: float) -> Answer:
        return Answer(0.05, 404 if path == "/robots.txt" else 200)

    def address(self, host: str) -> str:
        return f"10.{sum(host.encode()) % 256}.{len(host)}.1"

    def links(self, host: str, path: str) -> list[str]:
        if host.startswith("good"):
            return [f"http://{host}/{page}" for page in range(PAGES)]
        return [f"http://h{at % 7}.evil.test{path}{at}/" for at in range(LINKS)]


def test_all_pages_of_good_hosts_are_fetched_once_beside_it(tmp_path: Path) -> None:
    """There are more of them than places, and the crawl is stopped and killed while they wait."""

    async def run() -> tuple[Simulation, Web, list[int]]:
        web = Endless()
        settings = {"KROWL_FRONTIER_MAX": MAX, "KROWL_SITEMAPS": False}
        crawl = Simulation(web, in_memory(), tmp_path, settings)
        crawl.discover(["http://h0.evil.test/", *(f"http://good{n}.test/" for n in range(GOOD))])
        start, evil = crawl.clocks.monotonic, []
        for second in range(40):
            crawl.run_until(start + second)
            evil.append(crawl.job.frontier._load._counts.get("evil.test", 0))
            if second == 3:
                assert crawl.job.frontier.queued > MAX
                await crawl.restart(down=1.0)
            elif second == 6:
                crawl.crash(down=1.0)
            start += 1.0 * (second in (3, 6))
        return crawl, web, evil

    crawl, web, evil = asyncio.run(run())
    fetched = Counter(
        f"{entry.host}{entry.path}"
        for entry in web.log
        if entry.host.startswith("good") and entry.complete and entry.path != "/robots.txt"
    )
    wanted = [f"good{n}.test/{page}" for n in range(GOOD) for page in ["", *range(PAGES)]]
    assert sorted(fetched) == sorted(wanted)
    # The kill may cost what was fetched since the commit before.
    died = crawl.deaths[0]
    late = {f"{entry.host}{entry.path}" for entry in web.log if died - 1.1 < entry.end <= died}
    assert {url for url, times in fetched.items() if times > 1} <= late
    assert 0.9 * 2 * DOMAIN_SHARE * MAX < evil[-1] <= max(evil) <= MAX // 2 + LINKS
    assert crawl.job.frontier.counters["dropped/domain_share"] > 1000
    assert set(crawl.job.frontier.refused.hosts("domain_share")) == {
        f"h{at}.evil.test" for at in range(7)
    }
    assert crawl.job.frontier.counters["dropped/frontier"] == 0
