"""Extension: serve the crawl by gRPC, in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured

from krowlspider.job.crawls import crawl_of
from krowlspider.job.monitoring.access import CONTROL_TOKEN
from krowlspider.job.parts import warc_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from scrapy.crawler import Crawler

    from krowlspider.rpc.process import ServingProcess

# The count of a process that is no refusal.
_CALLS = "call"


class Rpc:
    """Runs the process while the engine runs.

    :raises NotConfigured: KROWL_GRPC is not set
    :raises SettingsError: its address is taken, or not safe
    """

    def __init__(self, crawler: Crawler):
        settings = crawler.settings
        if not settings["KROWL_GRPC"]:
            raise NotConfigured
        # Most crawls have no gRPC.
        from krowlspider.rpc.options import check_before_start  # noqa: PLC0415

        check_before_start(settings)
        self._crawler = crawler
        self._stats = crawler.stats
        self._server: ServingProcess | None = None
        # The counts of the process that runs now.
        self._counts: dict[str, int] = {}
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self) -> None:
        from krowlspider.rpc.process import ServingPlan, ServingProcess  # noqa: PLC0415

        settings, folder = self._crawler.settings, crawl_of(self._crawler).job.folder.path
        token = settings["KROWL_CONTROL_TOKEN"]
        token = token or (folder / CONTROL_TOKEN).read_text(encoding="ascii").strip()
        is_archived = settings.getbool("KROWL_ARCHIVE")
        archive = {"": warc_folder(settings, folder)} if is_archived else {}
        self._server = ServingProcess(ServingPlan.of(settings, token, folder, archive), self._count)
        self._server.start()

    async def _stop(self) -> None:
        if self._server is not None:
            await self._server.stop()

    def _count(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            before = self._counts.get(name, 0)
            # A process that was started again counts from 0.
            more = count - before if count >= before else count
            stat = "call_count" if name == _CALLS else f"refused_count/{name}"
            self._stats.inc_value(f"krowl/grpc/{stat}", more)
        self._counts = dict(counts)
