"""Quotes by way of proxies that take turns."""

from scrapy import Request, Spider

from proxied import SITE


class ProxiedSpider(Spider):
    name = "proxied"

    async def start(self):
        for page in range(1, 4):
            yield Request(f"{SITE}/quotes/page/{page}/")

    def parse(self, response):
        for quote in response.xpath("//div[@class='quote']"):
            yield {"text": quote.xpath(".//span[@class='text']/text()").get()}
