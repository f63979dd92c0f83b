import random
import sqlite3
from pathlib import Path

from scrapy import Request, signals


class RandomUserAgentMiddleware:
    """Gives each request one of USER_AGENT_LIST."""

    def __init__(self, agents):
        self.agents = agents

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.settings.getlist("USER_AGENT_LIST"))

    def process_request(self, request):
        request.headers["User-Agent"] = random.choice(self.agents)


class DeltaMiddleware:
    """Leaves out requests of pages that have given an item in an earlier crawl."""

    def __init__(self, crawler):
        self.crawler = crawler
        self.path = Path(crawler.settings["DELTA_FILE"])

    @classmethod
    def from_crawler(cls, crawler):
        middleware = cls(crawler)
        crawler.signals.connect(middleware.opened, signal=signals.spider_opened)
        crawler.signals.connect(middleware.closed, signal=signals.spider_closed)
        return middleware

    def opened(self, spider):
        self.path.parent.mkdir(exist_ok=True)
        self.db = sqlite3.connect(self.path)
        self.db.execute("CREATE TABLE IF NOT EXISTS seen (key TEXT PRIMARY KEY)")

    def closed(self, spider):
        self.db.commit()
        self.db.close()

    async def process_spider_output(self, response, result):
        async for each in result:
            if isinstance(each, Request):
                if self.db.execute("SELECT 1 FROM seen WHERE key = ?", [self.key(each)]).fetchone():
                    self.crawler.stats.inc_value("delta/skipped")
                    continue
            else:
                self.db.execute(
                    "INSERT OR IGNORE INTO seen VALUES (?)", [self.key(response.request)]
                )
            yield each

    def key(self, request):
        fingerprint = self.crawler.request_fingerprinter.fingerprint(request).hex()
        return request.meta.get("delta_key") or fingerprint
