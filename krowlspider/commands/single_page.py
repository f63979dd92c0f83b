"""Scrapy's own components for the commands that fetch single pages: shell, fetch, view, parse.

These commands need no frontier and no archive, as a person requests each page once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.settings import default_settings as scrapy

if TYPE_CHECKING:
    from scrapy.settings import Settings

_SCRAPYS = (
    "SCHEDULER",
    "DUPEFILTER_CLASS",
    "DOWNLOADER",
    "DOWNLOAD_HANDLERS_BASE",
    "DOWNLOADER_MIDDLEWARES_BASE",
    "SPIDER_MIDDLEWARES_BASE",
    "EXTENSIONS_BASE",
)


def use_scrapys_own(settings: Settings) -> None:
    """Replace the project's scheduler, downloader, middlewares and extensions by Scrapy's own."""
    own = {name: getattr(scrapy, name) for name in _SCRAPYS}
    # The console's password is written to a job folder, and there is none here.
    own["TELNETCONSOLE_ENABLED"] = False
    own["USER_AGENT"] = settings["USER_AGENT"].replace("{contact}", settings["KROWL_CONTACT"] or "")
    own["ADDONS"] = {}
    settings.setdict(own, priority="cmdline")
