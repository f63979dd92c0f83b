"""A host whose name disappears keeps its pages: they are fetched when the name is back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from krowlspider.fetch.errors import NameNotFound
from tests.mockweb.audit import violations
from tests.support.simulation import Answer, Simulation, Web, in_memory

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86_400.0
PAGES = [f"/{number}" for number in range(20)]


class Gone(Web):
    """A host whose name disappears after five pages, until ``back`` is set."""

    back = False

    def answer(self, host: str, path: str, now: float) -> Answer:
        if path == "/robots.txt":
            return Answer(0.05, 404)
        gone = host == "gone.test" and not self.back and len(self.fetched(host)) >= 5
        return Answer(0.05, failure=NameNotFound) if gone else Answer(0.05)

    def address(self, host: str) -> str:
        return "192.0.2.1"

    def links(self, host: str, path: str) -> list[str]:
        return []

    def fetched(self, host: str) -> list[str]:
        """Return the paths of a host's pages that were answered."""
        return [e.path for e in self.log if e.host == host and e.status == 200]

    def tried(self) -> int:
        """Return the number of requests that failed for want of the name."""
        return sum(not entry.status for entry in self.log)


def test_page_of_a_gone_name_is_fetched_when_it_is_back(
    tmp_path: Path,
) -> None:
    """Until then the name is tried once a day."""

    async def run() -> None:
        web = Gone()
        simulation = Simulation(web, in_memory(), tmp_path, {"KROWL_SITEMAPS": False})
        clocks = simulation.clocks
        simulation.discover(
            f"http://{host}.test{path}" for host in ("gone", "here") for path in PAGES
        )
        simulation.run_until(clocks.monotonic + 60)
        assert (len(web.fetched("gone.test")), web.tried()) == (5, 1)
        assert sorted(web.fetched("here.test")) == sorted(PAGES)
        # It does not keep a crawl running, and a start does not try it.
        assert not simulation.scheduler.has_pending_requests()
        await simulation.restart(60.0)
        simulation.run_until(clocks.monotonic + 60)
        assert (simulation.job.frontier.pending, web.tried()) == (15, 1)
        clocks.pass_(1.25 * DAY)
        simulation.run_until(clocks.monotonic + 60)
        assert (simulation.job.frontier.pending, web.tried()) == (15, 2)
        web.back = True
        clocks.pass_(1.25 * DAY)
        simulation.run_until(clocks.monotonic + 60)
        assert sorted(web.fetched("gone.test")) == sorted(PAGES)
        assert simulation.job.frontier.pending == 0
        counted = simulation.dropped + simulation.scheduler.counted()
        assert counted == {"queued": 40, "done": 40, "done/robots": 4}
        assert violations(web.log, min_delay=0.25, tolerance=1e-5) == []

    asyncio.run(run())
