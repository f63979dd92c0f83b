"""Move Scrapy's log lines about its start to DEBUG, so that the crawl's own stand out."""

from __future__ import annotations

import logging

# The loggers that write at the start, and how such a message begins; "" is any message.
_AT_START = {
    "scrapy.utils.log": "",
    "scrapy.addons": "",
    "scrapy.middleware": "",
    "scrapy.crawler": "Overridden settings:",
    "scrapy.core.engine": "Spider opened",
    "scrapy.extensions.telnet": "Telnet console listening",
}


def _lower(record: logging.LogRecord) -> bool:
    """Turn an INFO line about the start into a DEBUG line; handlers check the level after this."""
    if record.levelno == logging.INFO and str(record.msg).startswith(_AT_START[record.name]):
        record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
    return True


def lower_start_lines() -> None:
    """Move Scrapy's lines about the start to DEBUG; warnings stay.

    A filter, because Scrapy's set-up of the log resets the levels of its loggers.
    """
    for name in _AT_START:
        # A filter that is there already is not added again.
        logging.getLogger(name).addFilter(_lower)
