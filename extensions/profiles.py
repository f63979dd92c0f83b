"""Extension: send profiles of this process to a Pyroscope server."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import run_in_thread

from krowlspider.job.crawls import crawl_of

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

# Seconds that the end of the crawl waits for the last profile. The agent waits twice as long for a
# server that does not answer.
_LAST = 5.0


class Profiles:
    """Samples the threads of this process while the engine runs, by the agent of pyroscope-io,
    which sends a profile every ten seconds.

    :raises NotConfigured: KROWL_PYROSCOPE is not set
    """

    def __init__(self, crawler: Crawler):
        self._server: str = crawler.settings["KROWL_PYROSCOPE"]
        if not self._server:
            raise NotConfigured
        # The check of the setting has found it.
        import pyroscope  # noqa: PLC0415 - an extra

        self._agent = pyroscope
        self._crawler = crawler
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._stop, signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        crawl = crawl_of(self._crawler)
        tags = {"spider": self._crawler.spidercls.name, "job": str(crawl.job.folder.path)}
        if crawl.node is not None:
            tags["node"] = crawl.node.own
        self._agent.configure(
            application_name="krowlspider", server_address=self._server, tags=tags
        )

    async def _stop(self) -> None:
        # A daemon: the end of the process does not wait for it.
        thread = Thread(target=self._agent.shutdown, name="profiles", daemon=True)
        thread.start()
        await run_in_thread(thread.join, _LAST)
