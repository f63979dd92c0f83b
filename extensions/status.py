"""Extension: log a status line every KROWL_STATUS_INTERVAL seconds, and a summary at the end.

On a terminal one live line, below the log, takes the place of the status lines.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals

from krowlspider.crawl.status import figures_wanted
from krowlspider.views.progress import CrawlProgress

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler


class Status:
    """Writes the progress of the crawl to the log, the stats and the job folder."""

    def __init__(self, crawler: Crawler):
        self._progress = progress = CrawlProgress(crawler, logging.getLogger(__name__))
        crawler.signals.connect(progress.start, signals.engine_started)
        crawler.signals.connect(progress.publish, figures_wanted)
        crawler.signals.connect(progress.end, signals.spider_closed)
        # After all that Scrapy logs at the end, and after the last upload.
        crawler.signals.connect(progress.sum_up, signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)
