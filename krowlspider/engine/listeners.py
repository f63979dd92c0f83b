"""Find out who listens to Scrapy's signals, and send none that nobody hears."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydispatch.dispatcher import Any, connections, getAllReceivers, liveReceivers
from scrapy import signals
from scrapy.extensions.corestats import CoreStats

from krowlspider.engine.logformatter import shows_pages

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

# The key of `connections` for listeners to any sender.
_ANYONE = id(Any)


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
            if Any in listened_to:
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

    def send_catch_log(signal: object = Any, **values: object) -> list[tuple[object, object]]:
        if values.get("sender", crawler) is crawler and not is_heard(crawler, signal):
            return []
        return send(signal, **values)

    manager.send_catch_log = send_catch_log  # type: ignore[method-assign]
