"""Books by their rank, into feeds of the spider's own, through a pipeline that fetches."""

import scrapy
from scrapy.spidermiddlewares.httperror import HttpError

from ranked import SITE


class RankedSpider(scrapy.Spider):
    """``-a folder`` is where its feeds are."""

    name = "ranked"
    start_urls = [f"{SITE}/books/"]
    custom_settings = {
        "FEEDS": {
            "%(folder)s/items.jsonl": {"format": "jsonlines", "encoding": "utf8"},
            "%(folder)s/media/covers.csv": {
                "format": "csv",
                "fields": {"rank": "Rank", "cover_bytes": "Size"},
                "overwrite": True,
            },
        }
    }

    def parse(self, response):
        links = ["/book/99.html", *response.css("h3 a::attr(href)").getall(), "/book/0.html"]
        for rank, link in enumerate(links):
            yield response.follow(
                link,
                self.parse_book,
                errback=self.failed,
                cb_kwargs={"rank": rank},
                priority=-rank,
                dont_filter=True,
            )

    def parse_book(self, response, rank):
        cover = response.urljoin(response.css("img::attr(src)").get())
        yield {"rank": rank, "title": response.css("h1::text").get(), "cover": cover[len(SITE) :]}

    def failed(self, failure):
        failure.trap(HttpError)
        yield {"rank": failure.request.cb_kwargs["rank"], "status": failure.value.response.status}
