import scrapy

from stages import SITE


class StagesSpider(scrapy.Spider):
    name = "stages"
    start_urls = [f"{SITE}/quotes/page/{page}/" for page in (1, 2, 3)]

    def parse(self, response):
        for text in response.css("span.text::text").getall():
            yield {"text": text}
