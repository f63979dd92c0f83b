"""Extension: a live page of the crawl, for browsers on this machine.

Its charts show the last hour, which is kept across restarts.
"""

from __future__ import annotations

import json
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call

from krowlspider.engine.control import Control
from krowlspider.job.crawls import crawl_of, job_of
from krowlspider.job.monitoring.access import CONTROL_TOKEN, Secret
from krowlspider.job.parts import warc_folder
from krowlspider.job.status import figures_wanted
from krowlspider.views.ordering import Ordering

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from scrapy.crawler import Crawler

    from krowlspider.job.monitoring.endpoint import Route

# Seconds between two samples, and those in the first minute of a start, so that its charts are not
# blank. Samples kept: those of an hour, of which a start or two may be part.
INTERVAL = 10.0
QUICK = 2.0
_MINUTE = 60.0
KEPT = 420
# Seconds after which the file is written again.
_WRITE_EACH = 60.0
# What a sample has: epoch seconds, then the figures.
FIELDS = (
    "time",
    "pages_per_second",
    "failed_per_second",
    "in_flight",
    "queued",
    "archive_mb",
    "lag_ms",
)


class History:
    """Samples of a crawl's figures. ``path`` is the file that keeps them.

    A file that cannot be read or written costs the charts their past, and nothing else.
    """

    def __init__(self, path: Path):
        self._path = path
        self._samples: deque[list[float]] = deque(maxlen=KEPT)
        # Times of the first sample of this start, and of the last write.
        self._begun = self._written = 0.0
        # Time, pages done and failures at the last sample.
        self._last: tuple[float, float, float] | None = None
        with suppress(OSError, ValueError, TypeError):
            for sample in json.loads(path.read_bytes()):
                if len(sample) == len(FIELDS):
                    self._samples.append([float(value) for value in sample])

    def add(self, now: float, figures: Mapping[str, float]) -> None:
        """Add the figures at ``now``, in epoch seconds, unless the last sample is too recent. Call
        it every QUICK seconds.

        ``done`` and ``failed`` are counts since the start, of which the sample has the rates.
        """
        last, counts = self._last, (now, figures["done"], figures["failed"])
        if last is None:
            self._begun = self._written = now
            self._last = counts
            return
        seconds = now - last[0]
        usual = QUICK if now - self._begun <= _MINUTE else INTERVAL
        # A timer may end a little early. A clock that was set back begins anew.
        if 0 < seconds < 0.9 * usual:
            return
        self._last = counts
        if seconds <= 0:
            return
        done, failed = figures["done"] - last[1], figures["failed"] - last[2]
        others = [figures[name] for name in FIELDS[3:]]
        self._samples.append([now, done / seconds, failed / seconds, *others])
        if not 0 <= now - self._written < _WRITE_EACH:
            self._written = now
            self.write()

    def write(self) -> None:
        """Write the samples to the file."""
        draft = self._path.with_name(f"{self._path.name}.new")
        with suppress(OSError):
            draft.write_text(json.dumps(list(self._samples)))
            draft.replace(self._path)

    def samples(self) -> dict[str, Any]:
        """Return the names of the figures, and the samples, the oldest first."""
        return {"fields": FIELDS, "samples": list(self._samples)}


class LivePage:
    """Has the page and what it asks served, beside the metrics or at an address of its own.

    :raises NotConfigured: PROMETHEUS_ENABLED is off
    """

    def __init__(self, crawler: Crawler):
        if not crawler.settings.getbool("PROMETHEUS_ENABLED"):
            raise NotConfigured
        self._crawler = crawler
        self._control = Control(crawler)
        self._token = Secret(crawler.settings["KROWL_CONTROL_TOKEN"])
        self._sampling = create_looping_call(self._sample)
        # Before the server of the metrics starts, which serves the page too.
        crawler.signals.connect(self._offer, signals.spider_opened)
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _offer(self) -> None:
        crawl = crawl_of(self._crawler)
        folder = crawl.job.folder.path
        self._history = History(folder / "history.json")
        crawl.page = self._routes
        if where := self._token.keep(folder / CONTROL_TOKEN):
            crawl.watched_at.append(f"token of its buttons {where}")

    def _routes(self) -> dict[str, Route]:
        # Importing aiohttp is slow, so it is imported for the first client.
        from krowlspider.archive.open_index import WriterLines  # noqa: PLC0415
        from krowlspider.cdx.archives import Archives  # noqa: PLC0415
        from krowlspider.cdx.pace import SHARE_OF_CRAWL  # noqa: PLC0415
        from krowlspider.cdx.route import CdxRoute  # noqa: PLC0415
        from krowlspider.views.frontier_copy import copy_routes  # noqa: PLC0415
        from krowlspider.views.live_page import HEADERS, index_now_routes, routes  # noqa: PLC0415

        orders = partial(Ordering, self._crawler)
        made = routes(self._control, self._history.samples, orders, self._token.text)
        crawl, settings = crawl_of(self._crawler), self._crawler.settings
        job = crawl.job
        made |= copy_routes(lambda: job.folder.path, lambda: job.store, self._token.text)
        if settings.getbool("KROWL_ARCHIVE"):
            folder = warc_folder(settings, crawl.job.folder.path)
            writer = crawl.job.archive
            archives = Archives([folder], lambda _: WriterLines(lambda: writer.open_lines))
            made |= CdxRoute(archives, HEADERS, SHARE_OF_CRAWL).routes()
        if settings.getbool("KROWL_INDEXNOW"):
            made |= index_now_routes(lambda: crawl.index_now)
        if settings["KROWL_SEARCH"]:
            from krowlspider.search.formats import Captures  # noqa: PLC0415 - most crawls have none
            from krowlspider.search.route import SearchRoute  # noqa: PLC0415
            from krowlspider.views.live_page import searching_page  # noqa: PLC0415

            made["/"] = searching_page()
            captures = Captures(has_cdx=settings.getbool("KROWL_ARCHIVE"))
            made |= SearchRoute(Path(settings["KROWL_SEARCH"]), captures, SHARE_OF_CRAWL).routes()
        if settings.getbool("KROWL_CONTROL_MCP"):
            from krowlspider.views.mcp import tool_route  # noqa: PLC0415 - most crawls have none

            made |= tool_route(made, self._token.text)
        return made

    def _start(self) -> None:
        self._sampling.start(QUICK, now=True)

    def _sample(self) -> None:
        self._crawler.signals.send_catch_log(figures_wanted)
        self._history.add(job_of(self._crawler).wall(), self._control.sample())

    def _stop(self) -> None:
        if self._sampling.running:
            self._sampling.stop()
        self._history.write()
        self._token.forget()
