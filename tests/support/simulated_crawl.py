"""Whole crawls by the real command, in the process of the test and in simulated time.

The whole crawler is real, except for its clocks, its network and the parts that watch its process.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, Self

from krowlspider.archive.write.writer import WarcWriter, _Order
from krowlspider.config.validation import CHECKERS
from krowlspider.job.crawls import open_crawl
from krowlspider.job.job import Job
from tests.support.crawling import Crawl
from tests.support.in_process import execute_here
from tests.support.simulated_loop import SimulatedLoop, clocks, scripts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy.crawler import Crawler

    from krowlspider.urls.scope import AskedScope
    from tests.support.simulated_loop import Script
    from tests.support.simulated_web import SimulatedWeb


class _Writer(WarcWriter):
    """Counts the orders that its thread has not answered (``at_work``)."""

    at_work = 0

    def _hand_over(self, *, last: bool = False) -> None:
        self.at_work += len(self._waiting)
        super()._hand_over(last=last)

    def _settle(self, outcomes: list[tuple[_Order, Any, Exception | None]]) -> None:
        self.at_work -= len(outcomes)
        super()._settle(outcomes)


class SimulatedJob(Job):
    """A job on the simulated clocks."""

    writer = _Writer
    wall = staticmethod(clocks.wall)
    monotonic = cpu = staticmethod(clocks.monotonic)

    def _open(self, asked: AskedScope | None) -> None:
        super()._open(asked)
        loop, archive = asyncio.get_running_loop(), self.archive
        assert isinstance(loop, SimulatedLoop)
        if not isinstance(archive, _Writer):
            # With KROWL_ARCHIVE=False there is no thread to wait for.
            return
        # On a full disk, its thread retries every second.
        loop.wait_for(lambda: archive.at_work > 0 and not archive.stalled, lambda: archive.stalled)


class SimulatedJobs:
    """An extension that sets a simulated job for a crawl, before any component uses its job."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        open_crawl(crawler, SimulatedJob).job.chance = Random(1).random
        return cls()


_HANDLER = "krowlspider.engine.handler.DownloadHandler"
_SETTINGS: Mapping[str, object] = {
    "TWISTED_REACTOR_ENABLED": 0,
    "ASYNCIO_EVENT_LOOP": "tests.support.simulated_loop.SimulatedLoop",
    # Without a reactor, Scrapy replaces the handlers by its own.
    "DOWNLOAD_HANDLERS": f'{{"http": "{_HANDLER}", "https": "{_HANDLER}"}}',
    "PROMETHEUS_ENABLED": 0,
}
# Extensions that watch or tune the process are off.
_EXTENSIONS = {
    "tests.support.simulated_crawl.SimulatedJobs": -1000,
    "krowlspider.extensions.watchdog.Watchdog": None,
    "krowlspider.extensions.gc_tuning.GcTuning": None,
    "krowlspider.extensions.loop_lag.LoopLag": None,
}


def interrupt() -> None:
    """Send SIGINT to the running crawl."""
    signal.raise_signal(signal.SIGINT)


def interrupted_when(awaited: Callable[[], bool] | float) -> Script:
    """Return a script that ends the crawl by SIGINT once a condition is true, or so many seconds
    after its start."""
    yield awaited
    interrupt()


@dataclass
class SimulatedCrawl(Crawl):
    """One run of ``scrapy crawl``.

    ``script`` runs during the crawl. ``longest_turn`` is that of its loop (see `SimulatedLoop`).
    """

    script: Script | None = None
    longest_turn: float = 0.0

    def run_until_killed(
        self, web: SimulatedWeb, awaited: Callable[[], bool] | float, *, code: int = 0
    ) -> Self:
        """Run until a condition is true, or for so many seconds, as if it was killed then.

        Afterwards, the folder and the web are as they were then. SIGINT ends the crawl with
        ``code``.
        """
        copy = self.jobdir.with_name(f"{self.jobdir.name}.killed")

        def die() -> Script:
            yield awaited
            shutil.copytree(self.jobdir, copy)
            web.hold()
            interrupt()

        self.script = die()
        self.run(code=code)
        web.go_back()
        shutil.rmtree(self.jobdir)
        copy.rename(self.jobdir)
        return self

    def start(self) -> NoReturn:
        raise AssertionError("a simulated crawl only runs to its end: give it a script")

    def run(self, *, code: int = 0) -> Self:
        own = json.loads(str(self.settings.get("EXTENSIONS", "{}")))
        extensions = json.dumps({**_EXTENSIONS, **own})
        self.settings = {**_SETTINGS, **self.settings, "EXTENSIONS": extensions}
        scripts[:] = [] if self.script is None else [self.script]
        # Scrapy makes a loop of asyncio's class before one of this class.
        loop = SimulatedLoop()
        asyncio.set_event_loop(loop)
        environment = {"STATS_FILE": str(self.stats_path)}
        # The check at the start demands Twisted's reactor.
        refuse = CHECKERS.pop("TWISTED_REACTOR_ENABLED")
        try:
            with self.log_path.open("w+b") as log, self.log_path.open("rb") as nothing:
                found = execute_here(self.words(), nothing, log, log, environment)
        finally:
            CHECKERS["TWISTED_REACTOR_ENABLED"] = refuse
            loop.close()
        self.longest_turn = loop.longest_turn
        if loop.failure is not None:
            raise loop.failure
        assert found == code, f"exit code {found}:\n{self.log[-5000:]}"
        return self
