"""The components that a crawl's guarantees need, and checks that the settings still have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.settings import BaseSettings


class Needed(NamedTuple):
    """A component that must be in a setting, itself or a class derived from it.

    ``does`` and ``way_out`` complete the error message. ``asked_by`` is the setting without which
    the component has nothing to do.
    """

    setting: str
    path: str
    does: str
    way_out: str = ""
    asked_by: str = ""


NEEDED = (
    Needed(
        "DOWNLOADER_MIDDLEWARES",
        "middlewares.retry.RetryMiddleware",
        "gives failed pages back to the queue",
        "to turn retries off, set RETRY_TIMES=0 and KROWL_THROTTLING_TIMES=0",
    ),
    Needed(
        "SPIDER_MIDDLEWARES",
        "middlewares.joining.Joining",
        "asks which node of the cluster owns a start request",
    ),
    Needed(
        "EXTENSIONS",
        "extensions.exclude.Exclude",
        "reads KROWL_EXCLUDE",
        "to exclude nothing, set KROWL_EXCLUDE to None",
        asked_by="KROWL_EXCLUDE",
    ),
)
HANDLER = "krowlspider.engine.handler.DownloadHandler"
# Looks for the components above, so `misplaced` looks for it.
LAST_CHECK = "krowlspider.config.validation.LastCheck"
# Built-in components by the setting in which they might be looked for, each with the way to turn it
# off, if there is one.
BUILT_IN = {
    "DOWNLOADER_MIDDLEWARES": {
        "middlewares.robots.RobotsMiddleware": "; to ignore robots.txt, set ROBOTSTXT_OBEY=False",
        "middlewares.politeness.PolitenessMiddleware": "",
    },
    "EXTENSIONS": {
        "extensions.checkpoint.Checkpoint": "",
        "extensions.diskguard.DiskGuard": "; to turn the disk guard off, set KROWL_DISK_FLOOR=0",
    },
}


def misplaced(settings: BaseSettings) -> list[str]:
    """Return faults of settings that name built-in components or remove the last check.

    Nothing is loaded.
    """
    found = [
        f"{name} names {path}, which is built in and always there: remove it from {name}{way_out}"
        for name, paths in BUILT_IN.items()
        for path, way_out in paths.items()
        if path in map(_path, settings.get(name) or ())
    ]
    extensions = {
        **(settings["EXTENSIONS_BASE"] or {}),
        **{_path(key): order for key, order in (settings["EXTENSIONS"] or {}).items()},
    }
    if extensions.get(LAST_CHECK) is None:
        found.append(_lacks("EXTENSIONS", LAST_CHECK, "looks for components that are missing"))
    return found


def missing(settings: BaseSettings) -> list[str]:
    """Return the components that a crawl with these settings would lack, each with the way out.

    This loads the components that the settings name, for which a reactor must be installed.
    """
    return [*_components(settings), *_handlers(settings)]


def _components(settings: BaseSettings) -> Iterator[str]:
    for needed in NEEDED:
        if needed.asked_by and settings.get(needed.asked_by) is None:
            continue
        try:
            there = settings.get_component_priority_dict_with_base(needed.setting)
            has = any(is_derived(component, needed.path) for component in there)
        except (ImportError, NameError, TypeError, ValueError) as error:
            yield f"{needed.setting} cannot be loaded: {error}"
            continue
        if not has:
            way_out = f"; {needed.way_out}" if needed.way_out else ""
            yield _lacks(needed.setting, needed.path, needed.does) + way_out


def _lacks(setting: str, path: str, does: str) -> str:
    return (
        f"{setting} lacks {path}, which {does}: remove its None from {setting}, and any"
        f" {setting}_BASE of your own"
    )


def _handlers(settings: BaseSettings) -> Iterator[str]:
    try:
        handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    except (TypeError, ValueError) as error:
        yield f"DOWNLOAD_HANDLERS cannot be read: {error}"
        return
    for scheme in ("http", "https"):
        try:
            if is_derived(handlers.get(scheme), HANDLER):
                continue
        except (ImportError, NameError, TypeError, ValueError) as error:
            yield f"DOWNLOAD_HANDLERS has for {scheme} what cannot be loaded: {error}"
            continue
        yield (
            f"DOWNLOAD_HANDLERS has {handlers.get(scheme)!r} for {scheme}, which is not derived from"
            f" {HANDLER}, so pages would not be archived and private addresses not refused: remove"
            f" {scheme} from it, and any DOWNLOAD_HANDLERS_BASE of your own"
        )


def _path(component: Any) -> str:
    return component if isinstance(component, str) else global_object_name(component)


def is_derived(component: Any, path: str) -> bool:
    """Return whether a class, or the path of one, is the class at ``path`` or derived from it.

    :raises ImportError: it cannot be loaded
    :raises NameError: it cannot be loaded
    :raises TypeError: it cannot be loaded
    :raises ValueError: it cannot be loaded
    """
    if component is None or component == path:
        return component is not None
    found = load_object(component)
    # Look at its bases: for Scrapy's scheduler, issubclass() asks only for methods.
    return isinstance(found, type) and load_object(path) in found.__mro__
