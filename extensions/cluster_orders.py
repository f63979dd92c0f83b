"""Extension: carry out what people at other nodes of the cluster order for hosts of this one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scrapy import signals

from krowlspider.crawl.job import Job
from krowlspider.views.ordering import carry_out

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler


class ClusterOrders:
    """Connects the orders of other nodes to the crawl; without a cluster it does nothing."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        crawler.signals.connect(self.start, signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def start(self) -> None:
        if (node := Job.of(self._crawler).node) is not None:
            node.orders.carry_out = partial(carry_out, self._crawler)
