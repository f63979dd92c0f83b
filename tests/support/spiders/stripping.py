"""A spider that replaces every component of the project by Scrapy's."""

from __future__ import annotations

import scrapy
from scrapy.settings import default_settings


class StrippingSpider(scrapy.Spider):
    name = "stripping"
    start_urls = ["http://a.test/"]
    custom_settings = {
        "ADDONS": {},
        "DUPEFILTER_CLASS": default_settings.DUPEFILTER_CLASS,
        "SCHEDULER": default_settings.SCHEDULER,
        "DOWNLOADER": default_settings.DOWNLOADER,
        "DOWNLOAD_HANDLERS_BASE": default_settings.DOWNLOAD_HANDLERS_BASE,
        "DOWNLOADER_MIDDLEWARES_BASE": default_settings.DOWNLOADER_MIDDLEWARES_BASE,
        "SPIDER_MIDDLEWARES_BASE": default_settings.SPIDER_MIDDLEWARES_BASE,
        "EXTENSIONS_BASE": default_settings.EXTENSIONS_BASE,
        "STATS_CLASS": default_settings.STATS_CLASS,
    }
