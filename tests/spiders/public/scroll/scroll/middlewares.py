from scrapy import signals


class ApiKeyMiddleware:
    """Adds the key of an API, and counts the answers."""

    @classmethod
    def from_crawler(cls, crawler):
        middleware = cls()
        middleware.crawler = crawler
        crawler.signals.connect(middleware.spider_opened, signal=signals.spider_opened)
        return middleware

    def spider_opened(self, spider):
        self.key = spider.api_key

    def process_request(self, request):
        request.headers.setdefault("X-Api-Key", self.key)

    def process_response(self, request, response):
        self.crawler.stats.inc_value("api/answers")
        return response


class NumberingMiddleware:
    """A spider middleware that adds the depth of its page to each item."""

    async def process_spider_output(self, response, result):
        async for each in result:
            if isinstance(each, dict):
                each["depth"] = response.meta["depth"]
            yield each
