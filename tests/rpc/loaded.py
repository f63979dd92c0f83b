"""An extension that counts the modules of gRPC that a crawl has loaded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scrapy import signals

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler


class Loaded:
    def __init__(self, crawler: Crawler):
        self._stats = crawler.stats
        crawler.signals.connect(self._count, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _count(self) -> None:
        names = [name for name in sys.modules if name.partition(".")[0] in {"grpc", "grpc_health"}]
        self._stats.set_value("modules of gRPC", len(names))
