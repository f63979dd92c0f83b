"""An API that is asked by POST, page by page."""

import scrapy
from scrapy.http import JsonRequest

from api import SITE


class ApiSpider(scrapy.Spider):
    name = "api"
    authors = ["Ada Lovelace", "Émilie du Châtelet"]

    async def start(self):
        for author in self.authors:
            yield self.search(author, 0)

    def search(self, author, page):
        return JsonRequest(
            f"{SITE}/api/search",
            data={"author": author, "page": page, "size": 3},
            cb_kwargs={"author": author},
        )

    def parse(self, response, author):
        found = response.json()
        for hit in found["hits"]:
            yield {"asked": author, **hit}
        if found["page"] + 1 < found["pages"]:
            yield self.search(author, found["page"] + 1)
