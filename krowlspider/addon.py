"""The add-on that turns a Scrapy project into a polite and durable crawl: docs/addon.md.

``ADDONS = {"krowlspider.addon.Krowl": 100}`` in the settings of a project. What the add-on sets has
the priority ``addon``: the project, its spiders and the command line override it. A start in which
a guarantee would not hold is refused (`krowlspider.config.guarantees`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from scrapy.settings import SETTINGS_PRIORITIES, default_settings
from scrapy.utils.misc import load_object
from scrapy.utils.reactor import is_reactor_installed

from krowlspider.config.guarantees import LOAD_ERRORS
from krowlspider.config.log import keep_out_of_logs, name_spider
from krowlspider.config.validation import validate
from krowlspider.settings import defaults

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings, Settings

_PRIORITY = SETTINGS_PRIORITIES["addon"]
# Each project has its own.
_OF_THE_PROJECT = frozenset(
    {"ADDONS", "BOT_NAME", "COMMANDS_MODULE", "NEWSPIDER_MODULE", "SPIDER_MODULES"}
)
_SCRAPYS = vars(default_settings)
# A process that has its event loop cannot change it.
_LOOP = "ASYNCIO_EVENT_LOOP"
# Settings of other names that a variable of the environment may give.
_FROM_ENVIRONMENT = frozenset({"JOBDIR", "REDIS_URL", "REDIS_URL_FILE"})


class Krowl:
    """Frontier, politeness, robots.txt, fetcher, archive and live page."""

    def __init__(self, crawler: Crawler):
        self._spider: str = getattr(crawler.spidercls, "name", "")

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Set what nobody has set: log, reactor and event loop are read before any crawler."""
        flat = _is_flat(settings)
        for name, value in defaults.items():
            if name in _OF_THE_PROJECT or (name == _LOOP and is_reactor_installed()):
                continue
            # What another add-on has set stays, whichever comes first.
            if (settings.getpriority(name) or 0) < _PRIORITY:
                settings.set(name, value, _PRIORITY)
            elif flat and name in _SCRAPYS and settings[name] == _SCRAPYS[name]:
                settings.set(name, value, "project")
        settings.update(dict(_environment()), "project")

    def update_settings(self, settings: Settings) -> None:
        """:raises SettingsError: as `validate`"""
        self.update_pre_crawler_settings(settings)
        keep_out_of_logs()
        validate(settings)
        name_spider(settings, self._spider)


def _is_flat(settings: BaseSettings) -> bool:
    """Return whether Scrapy's defaults have the priority of a project.

    So has a script them that copies settings into a dict: ``{**get_project_settings(), ...}``.
    """
    name = "EXTENSIONS_BASE"
    has_default = settings[name] == _SCRAPYS[name]
    return has_default and (settings.getpriority(name) or 0) > _PRIORITY


def _environment() -> Iterator[tuple[str, str]]:
    """Yield the settings that the environment gives. An empty variable is as good as none; one that
    names no setting stops the start."""
    for name, value in os.environ.items():
        is_ours = name.startswith("KROWL_") and name in defaults
        if value and (is_ours or name in _FROM_ENVIRONMENT):
            yield name, value


def profile_of(settings: BaseSettings) -> type[Krowl] | None:
    """Return the class of the add-on that a project uses; None if it uses none."""
    orders = settings.getdict("ADDONS").items()
    return next(
        (found for addon, order in orders if order is not None and (found := _profile(addon))), None
    )


def without_profiles(settings: BaseSettings) -> dict[Any, Any]:
    """Return the other add-ons of a project."""
    addons = settings.getdict("ADDONS")
    return {addon: order for addon, order in addons.items() if _profile(addon) is None}


def _profile(addon: Any) -> type[Krowl] | None:
    """Return the class that ADDONS names if it is this add-on."""
    try:
        found = load_object(addon)
    except LOAD_ERRORS:
        # The check of ADDONS names it.
        return None
    return found if isinstance(found, type) and issubclass(found, Krowl) else None


def fill_in(settings: BaseSettings) -> None:
    """Set what the add-on of a project sets, in a command that runs before any crawler."""
    (profile_of(settings) or Krowl).update_pre_crawler_settings(settings)
