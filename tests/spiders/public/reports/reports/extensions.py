import json
from collections import Counter
from pathlib import Path

from scrapy import signals
from scrapy.exceptions import NotConfigured


class Report:
    """Counts signals, and writes the counts and some stats to REPORT_FILE at the end."""

    def __init__(self, crawler):
        if not crawler.settings["REPORT_FILE"]:
            raise NotConfigured
        self.crawler = crawler
        self.path = Path(crawler.settings["REPORT_FILE"])
        self.counts = Counter()
        connect = crawler.signals.connect
        connect(self.opened, signal=signals.spider_opened)
        connect(self.scraped, signal=signals.item_scraped)
        connect(self.dropped, signal=signals.item_dropped)
        connect(self.idle, signal=signals.spider_idle)
        connect(self.closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def opened(self, spider):
        self.counts["opened"] += 1
        spider.report = self

    def scraped(self, item, response, spider):
        self.counts["scraped"] += 1
        self.counts[f"status_{response.status}"] += 1

    def dropped(self, item, response, exception, spider):
        self.counts[str(exception)] += 1

    def idle(self):
        self.counts["idle"] = 1

    async def closed(self, spider, reason):
        stats = self.crawler.stats
        names = ("item_scraped_count", "item_dropped_count", "request_depth_max", "books/seen")
        report = {
            "reason": reason,
            "counts": dict(sorted(self.counts.items())),
            "stats": {name: stats.get_value(name) for name in names},
        }
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(report, indent=1))
