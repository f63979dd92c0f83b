"""The live page of one crawl, with the samples of its charts and the token of its buttons."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import create_looping_call

from krowlspider.crawl.job import Job
from krowlspider.crawl.monitoring.history import QUICK, History
from krowlspider.crawl.monitoring.secret import CONTROL_TOKEN, Secret
from krowlspider.crawl.status import figures_wanted
from krowlspider.engine.control import Control
from krowlspider.views.ordering import Ordering

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from krowlspider.crawl.monitoring.endpoint import Route


class ServedPage:
    """Call `offer` before the server of the metrics starts, then `start` and `stop`."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._control = Control(crawler)
        self._token = Secret(crawler.settings["KROWL_CONTROL_TOKEN"])
        self._sampling = create_looping_call(self._sample)

    def offer(self) -> None:
        """Have the server of the metrics serve the page too."""
        job = Job.of(self._crawler)
        self._history = History(job.folder.path / "history.json")
        job.page = self._routes
        if where := self._token.keep(job.folder.path / CONTROL_TOKEN):
            job.watched_at.append(f"token of its buttons {where}")

    def _routes(self) -> dict[str, Route]:
        # Importing aiohttp is slow, so it is imported for the first client.
        from krowlspider.views.live import routes  # noqa: PLC0415

        orders = partial(Ordering, self._crawler)
        return routes(self._control, self._history.samples, orders, self._token.text)

    def start(self) -> None:
        """Take samples of the figures."""
        self._sampling.start(QUICK, now=True)

    def _sample(self) -> None:
        self._crawler.signals.send_catch_log(figures_wanted)
        self._history.add(Job.of(self._crawler).wall(), self._control.sample())

    def stop(self) -> None:
        """Keep the samples, and remove the token."""
        if self._sampling.running:
            self._sampling.stop()
        self._history.write()
        self._token.forget()
