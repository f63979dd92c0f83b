"""Extension: carry out what people at other nodes of the cluster order for hosts of this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.engine.logformatter import order_received
from krowlspider.views.ordering import carry_out

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

    from krowlspider.cluster.transport.posts import OrderAsk, OrderFields


class ClusterOrders:
    """Carries out orders that people gave at other nodes, for hosts of this one."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        crawler.signals.connect(self.on_order, order_received)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def on_order(self, order: OrderAsk) -> OrderFields:
        return carry_out(self._crawler, order)
