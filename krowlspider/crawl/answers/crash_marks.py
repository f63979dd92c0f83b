"""The mark of the page at work, and the log lines about marks that an earlier process left."""

from __future__ import annotations

import logging
from shlex import quote
from typing import TYPE_CHECKING

from krowlspider.frontier.poison import POISON_STRIKES, is_poison
from krowlspider.frontier.store.schema import host_key
from krowlspider.frontier.work_mark import NOTHING, mark_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from krowlspider.crawl.in_flight import InFlight
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts.holds import Hold

logger = logging.getLogger(__name__)


def page_mark(frontier: Frontier, in_flight: InFlight | None) -> bytes:
    """Return the mark for the work on a request's page, or on the robots.txt of a host.

    Return `NOTHING` for a request that is not in flight.
    """
    if in_flight is None:
        return NOTHING
    if not in_flight.mark:
        if in_flight.lease is not None:
            in_flight.mark = mark_of(frontier.queues.key_of(in_flight.lease), in_flight.url)
        elif in_flight.robots_fetch is not None:
            in_flight.mark = mark_of(host_key(in_flight.robots_fetch.host.name), in_flight.url)
        else:
            return NOTHING
    return in_flight.mark


def log_strike(entry: Entry, folder: Path) -> None:
    """Log the page that the last process was working on when it died."""
    if is_poison(entry):
        logger.warning(
            "%s is set aside: the process has died %d times while it worked on this page."
            ' `scrapy frontier %s --export` shows it as "state": "poison"; --import of that line'
            " queues it again.",
            entry.url,
            entry.strikes,
            quote(str(folder)),
        )
    else:
        logger.warning(
            "The last process died while it worked on %s: strike %d of %d",
            entry.url,
            entry.strikes,
            POISON_STRIKES,
        )


def log_holds(holds: Iterable[Hold], folder: Path) -> None:
    """Log each host that is set aside because it held the event loop."""
    for hold in holds:
        if hold.aside:
            logger.warning(
                "%s is set aside for a day: it has held the event loop for over 5 s %d times, the"
                " last with %s. Nothing of it is lost: `scrapy frontier %s --host %s` shows it;"
                " --export and --forget with --import queue it again.",
                hold.host,
                hold.times,
                hold.url or "its queue",
                quote(str(folder)),
                quote(hold.host),
            )
