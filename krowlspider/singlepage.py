"""Scrapy's commands that look at single pages (shell, fetch, view, parse) run on Scrapy's own components.

They have no frontier and no archive, and they need none: a page is asked for by a person, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.settings import default_settings as scrapy

if TYPE_CHECKING:
    from scrapy.settings import Settings

_OURS = ("krowlspider.", "middlewares.", "extensions.")


def use_scrapys_own(settings: Settings) -> None:
    """Put Scrapy's own scheduler, downloader and middlewares in the place of the project's."""
    own = {
        name: getattr(scrapy, name)
        for name in ("SCHEDULER", "DUPEFILTER_CLASS", "DOWNLOADER", "DOWNLOAD_HANDLERS")
    }
    for name in ("DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "EXTENSIONS"):
        own[name] = {path: None for path in settings.getdict(name) if path.startswith(_OURS)}
    # Its password is in a crawl's folder.
    own["EXTENSIONS"]["extensions.telnet.TelnetConsole"] = None
    own["USER_AGENT"] = settings["USER_AGENT"].replace("{contact}", settings["KROWL_CONTACT"] or "")
    own["ADDONS"] = {}
    settings.setdict(own, priority="cmdline")
