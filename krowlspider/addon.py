"""The add-on that turns a Scrapy project into a polite and durable crawl: docs/addon.md.

``ADDONS = {"krowlspider.addon.Krowl": 100}`` in the settings of a project. What the add-on sets has
the priority ``addon``: the project, its spiders and the command line override it. A start in which
a guarantee would not hold is refused (`krowlspider.config.guarantees`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy.settings import SETTINGS_PRIORITIES, default_settings
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name
from scrapy.utils.reactor import is_reactor_installed

from krowlspider.config.guarantees import ARCHIVING, LOAD_ERRORS, refuse_unarchived
from krowlspider.config.log import keep_out_of_logs, name_spider
from krowlspider.config.validation import KNOWN, name_jobdir, validate
from krowlspider.errors import SettingsError
from krowlspider.settings import defaults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
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

    # What it sets, by name.
    table: ClassVar[Mapping[str, Any]] = defaults

    def __init__(self, crawler: Crawler):
        self._spider: str = getattr(crawler.spidercls, "name", "")

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Set what nobody has set: log, reactor and event loop are read before any crawler."""
        flat = _is_flat(settings)
        for name, value in cls.table.items():
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
        _refuse_several(settings)
        keep_out_of_logs()
        self.check(settings)
        name_jobdir(settings, self._spider)
        name_spider(settings, self._spider)

    @staticmethod
    def check(settings: BaseSettings) -> None:
        """:raises SettingsError: as `validate`"""
        validate(settings)


_SCHEMES = ("http", "https")
# Scrapy's middlewares for what the project's own handler does itself.
_OF_OTHER_HANDLERS = {
    "scrapy.downloadermiddlewares.defaultheaders.DefaultHeadersMiddleware": 400,
    "scrapy.downloadermiddlewares.httpcompression.HttpCompressionMiddleware": 590,
}


class KrowlFrontier(Krowl):
    """Frontier, politeness and robots.txt. Scrapy's download handlers fetch the pages, and nothing
    is archived. robots.txt is fetched by the project's own handler."""

    table: ClassVar[Mapping[str, Any]] = {
        **defaults,
        "KROWL_ARCHIVE": False,
        "DOWNLOAD_HANDLERS": {
            scheme: default_settings.DOWNLOAD_HANDLERS_BASE[scheme] for scheme in _SCHEMES
        },
        "DOWNLOADER_MIDDLEWARES_BASE": {
            **defaults["DOWNLOADER_MIDDLEWARES_BASE"],
            **_OF_OTHER_HANDLERS,
        },
        "DEFAULT_REQUEST_HEADERS": default_settings.DEFAULT_REQUEST_HEADERS,
    }


# An extension: what is wrong with the archive ends the start there, and in a handler it would not.
_OPENING = "krowlspider.engine.archiving.Opening"


class KrowlArchive(Krowl):
    """The archive alone, on Scrapy's own scheduler, downloader and middlewares."""

    table: ClassVar[Mapping[str, Any]] = {
        **{name: value for name, value in defaults.items() if name.startswith("KROWL_")},
        "KROWL_WARC_REVISIT": False,
        "DOWNLOAD_HANDLERS_BASE": {
            **default_settings.DOWNLOAD_HANDLERS_BASE,
            **dict.fromkeys(_SCHEMES, ARCHIVING),
        },
        "EXTENSIONS_BASE": {**default_settings.EXTENSIONS_BASE, _OPENING: 0},
    }

    @staticmethod
    def check(settings: BaseSettings) -> None:
        """:raises SettingsError: as `validate`, or pages would not be archived"""
        validate(settings, frozenset({*KNOWN, "TWISTED_REACTOR", "TWISTED_REACTOR_ENABLED"}))
        refuse_unarchived(settings)


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


def has_frontier(settings: BaseSettings) -> bool:
    """Return whether the crawls of a project have a frontier, or would have one by `fill_in`."""
    return not issubclass(profile_of(settings) or Krowl, KrowlArchive)


def _refuse_several(settings: BaseSettings) -> None:
    """:raises SettingsError: ADDONS has several of these add-ons"""
    orders = settings.getdict("ADDONS").items()
    found = [_profile(addon) for addon, order in orders if order is not None]
    names = sorted({global_object_name(each) for each in found if each})
    if len(names) > 1:
        raise SettingsError(f"ADDONS has {' and '.join(names)}, of which one can hold: keep one")


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
    """Set what the add-on of a project sets, in a command that runs before any crawler.

    The commands that crawl need the frontier: without such an add-on they have all of `Krowl`.
    """
    (profile_of(settings) or Krowl).update_pre_crawler_settings(settings)


def fill_in_for_program(settings: BaseSettings) -> None:
    """As `fill_in`, for a command that looks at folders of crawls: in a project without a frontier
    it does not meet the components of that project."""
    if issubclass(profile_of(settings) or KrowlArchive, KrowlArchive):
        for name in _SCRAPYS.keys() & defaults.keys() - {"JOBDIR"}:
            settings.set(name, defaults[name], "cmdline")
        Krowl.update_pre_crawler_settings(settings)
    else:
        fill_in(settings)
