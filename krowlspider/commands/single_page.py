"""Scrapy's own components for the commands that fetch single pages, and for ``scrapy bench``.

These commands need no frontier, no archive and no contact: a person requests each page once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.settings import default_settings as scrapy

from krowlspider.addon import fill_in, without_profiles
from krowlspider.commands.crawl import check_spider, loaded_spiders, one_line_errors
from krowlspider.config.validation import problem
from krowlspider.errors import SettingsError

if TYPE_CHECKING:
    import argparse

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
# Scrapy's settings of the log, whose errors it does not explain.
_CHECKED = ("LOG_FILE", "LOG_LEVEL")


class SinglePage:
    """Makes a command of Scrapy replace the project's components by Scrapy's own."""

    settings: Settings | None

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        settings = self.settings
        assert settings is not None
        with one_line_errors(opts):
            super().process_options(args, opts)  # type: ignore[misc]
            fill_in(settings)
            if faults := [fault for name in _CHECKED if (fault := problem(settings, name))]:
                raise SettingsError("; ".join(faults))
            names = sorted(loaded_spiders(settings).list())
            # Those of --spider, and of `scrapy check`.
            for name in self._spiders(args, opts):
                check_spider(name, names)
        own = {name: getattr(scrapy, name) for name in _SCRAPYS}
        # Scrapy's scheduler would write its queue into the folder of the crawl.
        own["JOBDIR"] = None
        # The console's password is written to a job folder, and there is none here.
        own["TELNETCONSOLE_ENABLED"] = False
        agent, contact = settings["USER_AGENT"], settings["KROWL_CONTACT"]
        if contact:
            own["USER_AGENT"] = agent.replace("{contact}", contact)
        elif "{contact}" in agent:
            own["USER_AGENT"] = scrapy.USER_AGENT
        own["ADDONS"] = without_profiles(settings)
        # Without a job nothing looks at sheets, and nothing calls hooks.
        own["KROWL_POLICIES"] = own["KROWL_HOOKS"] = None
        settings.setdict(own, priority="cmdline")

    def _spiders(self, args: list[str], opts: argparse.Namespace) -> list[str]:
        """Return the names of the spiders that are given."""
        # Without a page to fetch, a command has no such option.
        name = getattr(opts, "spider", None)
        return [] if name is None else [name]
