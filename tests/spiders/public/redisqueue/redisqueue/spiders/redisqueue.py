import scrapy
from scrapy_redis.spiders import RedisSpider

from redisqueue import SITE


class RedisQueueSpider(RedisSpider):
    """Takes its start URLs from a list in Redis, and one from its own start()."""

    name = "redisqueue"
    redis_key = "redisqueue:start_urls"

    async def start(self):
        yield scrapy.Request(f"{SITE}/quotes/page/1/")
        async for request in super().start():
            yield request

    def parse(self, response):
        for text in response.css(".quote .text::text").getall():
            yield {"text": text, "url": response.url[len(SITE) :]}
        yield from response.follow_all(css="li.next a")
