from pathlib import Path

import scrapy
from scrapy.linkextractors import LinkExtractor

from wide import SITE


class WideSpider(scrapy.Spider):
    """Follows each link from the start URLs of a file, down to DEPTH_LIMIT."""

    name = "wide"
    handle_httpstatus_list = [404]
    links = LinkExtractor(tags=("a", "area"), deny_extensions=["pdf"])

    async def start(self):
        for line in Path("seeds.txt").read_text().split():
            yield scrapy.Request(SITE + line)

    def parse(self, response):
        yield {
            "url": response.url[len(SITE) :],
            "status": response.status,
            "title": response.css("title::text").get(),
            "depth": response.meta["depth"],
        }
        for link in self.links.extract_links(response):
            yield scrapy.Request(link.url, self.parse)
