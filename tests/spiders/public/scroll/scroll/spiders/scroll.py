"""Endless scrolling by way of its API, with middlewares, settings and signals of the spider's
own."""

import scrapy
from scrapy import signals
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.spidermiddlewares.httperror import HttpError

from scroll import SITE


class ScrollSpider(scrapy.Spider):
    name = "scroll"
    api_key = "d1f0c0ffee"
    api_url = f"{SITE}/api/quotes?page=%s"
    handle_httpstatus_list = [404]
    custom_settings = {
        "DOWNLOAD_DELAY": 0.1,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    }

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.idle, signal=signals.spider_idle)
        spider.asked_again = False
        return spider

    async def start(self):
        yield {"kind": "start"}
        yield scrapy.Request(self.api_url % 1, self.parse, errback=self.failed)
        yield scrapy.Request(f"{SITE}/book/99.html", self.parse_missing, priority=10)
        yield scrapy.Request(
            f"{SITE}/api/quotes", self.parse, errback=self.failed, headers={"X-Api-Key": "wrong"}
        )

    async def parse(self, response):
        data = response.json()
        for quote in data["quotes"]:
            yield {"kind": "quote", "text": quote["text"]}
        if data["has_next"]:
            yield scrapy.Request(self.api_url % (data["page"] + 1), errback=self.failed)

    def parse_missing(self, response):
        yield {"kind": "missing", "status": response.status}

    def failed(self, failure):
        if failure.check(HttpError):
            yield {"kind": "refused", "status": failure.value.response.status}

    def parse_last(self, response):
        yield {"kind": "last"}
        raise CloseSpider("enough")

    def idle(self):
        if not self.asked_again:
            self.asked_again = True
            request = scrapy.Request(f"{SITE}/book/1.html?last", self.parse_last)
            self.crawler.engine.crawl(request)
            raise DontCloseSpider
