"""Log lines for pages and items; who listens to Scrapy's signals; the signal for orders of
other nodes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pydispatch.dispatcher import Any as AnySender
from pydispatch.dispatcher import connections, getAllReceivers, liveReceivers
from scrapy import signals
from scrapy.extensions.corestats import CoreStats
from scrapy.logformatter import LogFormatter as ScrapyLogFormatter
from scrapy.utils.log import get_scrapy_root_handler
from twisted.python.failure import Failure

from krowlspider.cluster.transport.message import BadMessage
from krowlspider.cluster.transport.posts import OrderAsk, OwnerError

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.logformatter import LogFormatterResult

    from krowlspider.cluster.transport.posts import OrderFields


class LogFormatter(ScrapyLogFormatter):
    """Scrapy's formatter, but without lines for pages and items that the log would not show.

    Scrapy opens its root logger to every level and lets a handler filter. So each such line would
    be formatted and then thrown away.
    """

    # Scrapy takes None for nothing to log.
    def crawled(self, *page: Any) -> LogFormatterResult | None:  # type: ignore[override]
        return super().crawled(*page) if shows_pages() else None

    def scraped(self, *item: Any) -> LogFormatterResult | None:  # type: ignore[override]
        return super().scraped(*item) if shows_pages() else None


def shows_pages() -> bool:
    """Return whether the log has a line for each page and item."""
    handler = get_scrapy_root_handler()
    # Without Scrapy's handler, somebody else decides what is shown.
    return handler is None or handler.level <= logging.DEBUG


# The key of `connections` for listeners to any sender.
_ANYONE = id(AnySender)


def wants_items(crawler: Crawler) -> bool:
    """Return whether anything uses the items.

    That is a pipeline, a feed, a spider middleware besides that of Scrapy, a listener
    other than that which counts items, or a log that shows them.
    """
    scraper = crawler.engine.scraper
    if scraper.itemproc.middlewares or len(scraper.spidermw.middlewares) > 1 or shows_pages():
        return True
    receivers = liveReceivers(getAllReceivers(crawler, signals.item_scraped))
    return any(not isinstance(getattr(each, "__self__", None), CoreStats) for each in receivers)


def is_heard(crawler: Crawler, *these: object) -> bool:
    """Return whether any of these signals may reach a receiver if this crawler sends them.

    A dead receiver that is not cleared away yet counts.
    """
    for key in (id(crawler), _ANYONE):
        listened_to = connections.get(key)
        if listened_to:
            if AnySender in listened_to:
                return True
            for signal in these:
                if signal in listened_to:
                    return True
    return False


def send_where_heard(crawler: Crawler) -> None:
    """Make a crawler send its signals only if somebody listens.

    Scrapy sends five signals for each request, and looks for the receivers of each.
    """
    manager = crawler.signals
    send = manager.send_catch_log

    def send_catch_log(signal: object = AnySender, **values: object) -> list[tuple[object, object]]:
        if values.get("sender", crawler) is crawler and not is_heard(crawler, signal):
            return []
        return send(signal, **values)

    manager.send_catch_log = send_catch_log  # type: ignore[method-assign]


# Signal: another node sent an order. Its one listener is called with ``order``, an `OrderAsk`. It
# returns the outcome, or raises `BadMessage` or `OwnerError`.
order_received = object()


def send_order(crawler: Crawler, order: OrderAsk) -> OrderFields:
    """Send `order_received`, and return the outcome of its listener.

    :raises BadMessage: raised by the listener for a message that is no order
    :raises OwnerError: it cannot be carried out, or nobody listens
    """
    answers = crawler.signals.send_catch_log(
        order_received, order=order, dont_log=(BadMessage, OwnerError)
    )
    if not answers:
        raise OwnerError(
            "it takes no orders of other nodes: its extension"
            " krowlspider.extensions.cluster_orders.ClusterOrders is off; give the order at that"
            " node",
            409,
        )
    outcome: OrderFields | Failure = answers[0][1]
    if isinstance(outcome, Failure):
        outcome.raiseException()
    return outcome
