"""A spider with components of its own in every setting of which its user may think."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy
from scrapy.utils.request import RequestFingerprinter

from krowlspider.engine.downloader import Downloader
from krowlspider.engine.dupefilter import DupeFilter
from krowlspider.engine.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy import Request
    from scrapy.http import Response

HERE = "tests.support.spiders.overriding"
# Keys by which a request leaves Scrapy's limits.
OWN_META = {
    "download_slot": "mine",
    "download_delay": 0,
    "dont_obey_robotstxt": True,
    "bindaddress": ("127.0.0.9", 0),
}


class OwnScheduler(Scheduler):
    pass


class OwnDupeFilter(DupeFilter):
    pass


class OwnDownloader(Downloader):
    pass


class OwnFingerprinter(RequestFingerprinter):
    pass


class Bystander:
    """An add-on, an extension, a spider middleware and a pipeline that do nothing."""

    def process_item(self, item: Any) -> Any:
        return item


class ImpatientMiddleware:
    """Asks for what was refused once more, nearer to the wire than anything of the project's."""

    def process_response(self, request: Request, response: Response) -> Request | Response:
        if response.status != 503 or request.meta.get("again"):
            return response
        return request.replace(meta={**request.meta, "again": True}, dont_filter=True)


class OverridingSpider(scrapy.Spider):
    """Fetches a page, and all that it links to."""

    name = "overriding"
    user_agent = "another"
    download_timeout = 5
    custom_settings = {
        "ADDONS": {f"{HERE}.Bystander": 0},
        "EXTENSIONS": {f"{HERE}.Bystander": 0},
        "DOWNLOADER_MIDDLEWARES": {f"{HERE}.ImpatientMiddleware": 9999},
        "SPIDER_MIDDLEWARES": {f"{HERE}.Bystander": 9999},
        "ITEM_PIPELINES": {f"{HERE}.Bystander": 0},
        "DOWNLOAD_HANDLERS": {"ftp": None},
        "SCHEDULER": f"{HERE}.OwnScheduler",
        "DUPEFILTER_CLASS": f"{HERE}.OwnDupeFilter",
        "DOWNLOADER": f"{HERE}.OwnDownloader",
        "REQUEST_FINGERPRINTER_CLASS": f"{HERE}.OwnFingerprinter",
        "LOG_FORMATTER": "scrapy.logformatter.LogFormatter",
        "FEED_EXPORTERS": {"lines": "scrapy.exporters.JsonLinesItemExporter"},
    }

    def __init__(self, root: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.root = root

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(f"{self.root}/")

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        for link in response.css("a::attr(href)").getall():
            headers = {"User-Agent": "someone else", "crawler-max-price": "USD 1"}
            yield response.follow(link, meta=OWN_META, headers=headers)
