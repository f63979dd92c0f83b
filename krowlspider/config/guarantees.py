"""The components that a crawl's guarantees need, and a check that the settings still have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from krowlspider.errors import SettingsError
from krowlspider.urls.page.headers import PAYMENTS, SIGNATURES

if TYPE_CHECKING:
    from collections.abc import Iterator


class Needed(NamedTuple):
    """A component that must be in a setting, itself or a class derived from it.

    ``does`` and ``way_out`` complete the error message. The component is needed only if the setting
    ``asked_by`` is set, where there is one.
    """

    setting: str
    path: str
    does: str
    way_out: str = ""
    asked_by: str = ""


NEEDED = (
    Needed(
        "DOWNLOADER_MIDDLEWARES",
        "krowlspider.middlewares.retry.RetryMiddleware",
        "gives failed pages back to the queue",
        "; to turn retries off, set RETRY_ENABLED=False",
    ),
    Needed(
        "SPIDER_MIDDLEWARES",
        "krowlspider.middlewares.joining.Joining",
        "asks which node of the cluster owns a start request",
    ),
    Needed(
        "EXTENSIONS",
        "krowlspider.extensions.exclude.Exclude",
        "reads KROWL_EXCLUDE",
        "; to exclude nothing, set KROWL_EXCLUDE to None",
        asked_by="KROWL_EXCLUDE",
    ),
)
HANDLER = "krowlspider.engine.handler.DownloadHandler"
# Middlewares that the downloader adds by itself, each with the way to turn it off, if there is one.
BUILT_IN = {
    "krowlspider.middlewares.robots.RobotsMiddleware": (
        "; to ignore robots.txt, set ROBOTSTXT_OBEY=False"
    ),
    "krowlspider.middlewares.politeness.PolitenessMiddleware": "",
}
# What `load_object` raises for the path of a component.
LOAD_ERRORS = (ImportError, NameError, TypeError, ValueError)


def misplaced(settings: BaseSettings) -> list[str]:
    """Return the faults of settings that name what is built in. Nothing is loaded."""
    name = "DOWNLOADER_MIDDLEWARES"
    named = set(map(_path, settings.get(name) or ()))
    found = [
        f"{name} names {path}, which is built in and always there: remove it from {name}{way_out}"
        for path, way_out in BUILT_IN.items()
        if path in named
    ]
    headers = {str(header).title().encode() for header in settings["DEFAULT_REQUEST_HEADERS"]}
    found += [
        f"DEFAULT_REQUEST_HEADERS has {header.decode()}: no request may offer to pay, remove it"
        for header in sorted(headers & PAYMENTS)
    ]
    if settings["KROWL_SIGN_KEY"]:
        found += [
            f"DEFAULT_REQUEST_HEADERS has {header.decode()}, and KROWL_SIGN_KEY is set: remove the"
            " header, requests are signed with their own"
            for header in sorted(headers & SIGNATURES)
        ]
    if b"User-Agent" in headers:
        found.append("DEFAULT_REQUEST_HEADERS has a User-Agent: set USER_AGENT in its place")
    return found


# Components of Scrapy that others replace, each with the setting that turns those off.
_REPLACED = {
    "scrapy.downloadermiddlewares.redirect.RedirectMiddleware": (
        "krowlspider.middlewares.redirect.RedirectMiddleware",
        "REDIRECT_ENABLED",
    ),
    "scrapy.downloadermiddlewares.retry.RetryMiddleware": (
        "krowlspider.middlewares.retry.RetryMiddleware",
        "RETRY_ENABLED",
    ),
    "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": (
        "krowlspider.middlewares.robots.RobotsMiddleware",
        "ROBOTSTXT_OBEY",
    ),
    "scrapy.extensions.telnet.TelnetConsole": (
        "krowlspider.extensions.telnet.TelnetConsole",
        "TELNETCONSOLE_ENABLED",
    ),
}


def out_of_place(settings: BaseSettings) -> Iterator[str]:
    """Yield a line for each component of Scrapy that somebody turns on or off though another one
    does its work, and for each that is named as it was before it was in the package."""
    for name in ("DOWNLOADER_MIDDLEWARES", "EXTENSIONS", "SPIDER_MIDDLEWARES"):
        ours = settings[f"{name}_BASE"]
        for component, order in settings[name].items():
            path = _path(component)
            if f"krowlspider.{path}" in ours:
                yield f"{name} names {path}, which has no effect: its name is krowlspider.{path}"
            if path not in _REPLACED or component in ours:
                continue
            other, switch = _REPLACED[path]
            if order is not None:
                yield f"{name} has {path} beside {other}, which does its work: remove it"
            elif settings.getbool(switch):
                yield (
                    f"{name} turns {path} off, and {other} does its work: to turn that off, set"
                    f" {switch}=False"
                )


def take_back(settings: BaseSettings, name: str) -> str:
    """Return how to take a setting back: who has set it, and what to remove."""
    if settings.getpriority(name) != SETTINGS_PRIORITIES["addon"]:
        return f"remove {name} from your settings"
    # The own add-on sets none that is refused.
    addons = settings.getdict("ADDONS").items()
    paths = [_path(addon) for addon, order in addons if order is not None]
    others = [path for path in paths if not path.startswith("krowlspider.")]
    return f"an add-on has set it: remove {' or '.join(others)} from ADDONS"


def missing(settings: BaseSettings) -> list[str]:
    """Return the components that a crawl with these settings would lack, each with the way out.

    This loads the components that the settings name, for which a reactor must be installed.
    """
    return [*_components(settings), *_second_robots(settings), *_handlers(settings)]


_SCRAPYS_ROBOTS = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"


def _second_robots(settings: BaseSettings) -> Iterator[str]:
    """Its request would wait for the page that waits for it: a host has one request in flight."""
    name = "DOWNLOADER_MIDDLEWARES"
    for component, order in settings.getwithbase(name).items():
        try:
            is_second = order is not None and is_derived(component, _SCRAPYS_ROBOTS)
        except LOAD_ERRORS:
            # The check of the other components names it.
            continue
        if is_second and settings.getbool("ROBOTSTXT_OBEY"):
            yield (
                f"{name} has {_path(component)}, whose requests for robots.txt would wait for their"
                " own pages for ever: remove it; robots.txt is asked before each page without it"
            )


def _components(settings: BaseSettings) -> Iterator[str]:
    for needed in NEEDED:
        name = needed.setting
        if needed.asked_by and settings.get(needed.asked_by) is None:
            continue
        try:
            there = settings.get_component_priority_dict_with_base(name)
            has = any(is_derived(component, needed.path) for component in there)
        except LOAD_ERRORS as error:
            yield f"{name} cannot be loaded: {error}"
            continue
        if not has:
            yield (
                f"{name} lacks {needed.path}, which {needed.does}: delete its entry with None from"
                f" {name}, and any {name}_BASE of your own{needed.way_out}"
            )


def unloadable(settings: BaseSettings, error: BaseException) -> str | None:
    """Return the fault if ``error`` is that of a component that a setting names and that is not
    there.

    If a module's own import failed, the traceback shows the place, and None is returned.
    """
    for name in settings:
        value = settings[name]
        for path in value if isinstance(value, BaseSettings) else (value,):
            if isinstance(path, str) and _lacks(error, path):
                return f"{name} names {path!r}, which cannot be loaded: {error}"
    return None


def _lacks(error: BaseException, path: str) -> bool:
    """Return whether an error of `load_object` says that ``path`` is not there."""
    if isinstance(error, ModuleNotFoundError):
        return f"{path}.".startswith(f"{error.name}.")
    module, _, name = path.rpartition(".")
    # The text of Scrapy's message; the error has no other field.
    text = f"Module '{module}' doesn't define any object named '{name}'"
    return isinstance(error, NameError) and str(error) == text


def _handlers(settings: BaseSettings) -> Iterator[str]:
    for scheme in ("http", "https"):
        # DOWNLOAD_HANDLERS may name one of another project, whose pages are not archived.
        base = settings["DOWNLOAD_HANDLERS_BASE"].get(scheme)
        handler = settings.getwithbase("DOWNLOAD_HANDLERS").get(scheme)
        try:
            if handler is not None:
                load_object(handler)
            derived = handler is not None and is_derived(base, HANDLER)
        except LOAD_ERRORS as error:
            yield f"DOWNLOAD_HANDLERS has a handler for {scheme} that cannot be loaded: {error}"
            continue
        if not derived:
            yield (
                f"DOWNLOAD_HANDLERS has {handler!r} for {scheme}, which is not derived from"
                f" {HANDLER}, so pages would not be archived and private addresses not refused:"
                f" remove {scheme} from it, and any DOWNLOAD_HANDLERS_BASE of your own"
            )


ARCHIVING = "krowlspider.engine.archiving.ArchivingHandler"


def refuse_unarchived(settings: BaseSettings) -> None:
    """Refuse a crawl of KrowlArchive whose pages another handler fetches.

    :raises SettingsError: as said, with the way out
    """
    for scheme in ("http", "https"):
        found = settings.getwithbase("DOWNLOAD_HANDLERS").get(scheme)
        if found is None or _path(found) != ARCHIVING:
            raise SettingsError(
                f"DOWNLOAD_HANDLERS has {found!r} for {scheme}, which archives nothing: remove it,"
                " also from the other add-ons, or the add-on KrowlArchive"
            )


def _path(component: Any) -> str:
    return component if isinstance(component, str) else global_object_name(component)


def is_derived(component: Any, path: str) -> bool:
    """Return whether a class, or the path of one, is the class at ``path`` or derived from it.

    It raises one of `LOAD_ERRORS` if the class cannot be loaded.
    """
    if component is None or component == path:
        return component is not None
    found = load_object(component)
    # Look at its bases: for Scrapy's scheduler, issubclass() asks only for methods.
    return isinstance(found, type) and load_object(path) in found.__mro__
