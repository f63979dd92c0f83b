"""Broken links of a list, and answers that are no pages."""

import scrapy
from scrapy.spidermiddlewares.httperror import HttpError

from statuses import SITE


class StatusesSpider(scrapy.Spider):
    name = "statuses"
    handle_httpstatus_list = [500]

    async def start(self):
        for status in (200, 404, 500, 502):
            yield scrapy.Request(f"{SITE}/status/{status}", errback=self.failed)
        every = {"handle_httpstatus_all": True}
        yield scrapy.Request(f"{SITE}/status/403", meta=every)
        yield scrapy.Request(f"{SITE}/status/429", meta={**every, "dont_retry": True}, priority=-1)
        yield scrapy.Request(
            f"{SITE}/author/1",
            self.parse_moved,
            meta={"dont_redirect": True, "handle_httpstatus_list": [302]},
        )

    def parse(self, response):
        yield {"page": response.status}

    def parse_moved(self, response):
        yield {"moved": response.urljoin(response.headers["Location"].decode())[len(SITE) :]}

    def failed(self, failure):
        if failure.check(HttpError):
            yield {"failed": failure.value.response.status}
