"""Quotes by way of proxies that take turns."""

from scrapy import Request, Spider

from tests.spiders.public import SITE


class ProxiedSpider(Spider):
    name = "proxied"
    custom_settings = {
        "DOWNLOADER_MIDDLEWARES": {
            "tests.spiders.public.middlewares.RotatingProxyMiddleware": 610,
        }
    }

    async def start(self):
        for page in range(1, 4):
            yield Request(f"{SITE}/quotes/page/{page}/")

    def parse(self, response):
        for quote in response.xpath("//div[@class='quote']"):
            yield {"text": quote.xpath(".//span[@class='text']/text()").get()}
