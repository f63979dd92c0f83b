import scrapy

from reports import SITE


class ReportsSpider(scrapy.Spider):
    name = "reports"
    start_urls = [f"{SITE}/books/"]

    def parse(self, response):
        yield from response.follow_all(css="h3 a", callback=self.parse_book)
        yield from response.follow_all(css="li.next a")

    def parse_book(self, response):
        self.crawler.stats.inc_value("books/seen")
        assert self.report.counts["opened"] == 1
        yield {
            "title": response.css("h1::text").get(),
            "price": response.css(".price_color::text").get(),
            "stock": int(response.css(".availability::text").re_first(r"\d+")),
        }
