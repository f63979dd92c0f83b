"""The hooks of one crawl: loaded, and each wired to where it is called."""

from __future__ import annotations

import logging
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from scrapy.utils.misc import load_object

from krowlspider.errors import SettingsError
from krowlspider.hooks.calls import Call
from krowlspider.hooks.hooks import SYNC, Hooks, overridden
from krowlspider.hooks.words import HookError
from krowlspider.job.hooking.link_hooks import LinkHooks
from krowlspider.job.hooking.page_hooks import DelayHook, PageHooks

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

    from krowlspider.recrawl.value import Terms

logger = logging.getLogger(__name__)


class Hooked:
    """The hooks that an object overrides, by where they are called.

    ``timeout`` is in seconds, ``fetch_timeout`` that of `Hooks.fetch`; ``count`` is called with the
    name of each stat to count.
    """

    def __init__(
        self,
        hooks: Hooks,
        *,
        timeout: float,
        fetch_timeout: float,
        count: Callable[[str], object],
    ):
        self.hooks = hooks
        self.calls = {
            name: Call(
                name,
                getattr(hooks, name),
                timeout=fetch_timeout if name == "fetch" else timeout,
                may_hold=name in ("start", "end"),
                count=count,
            )
            for name in overridden(hooks)
        }
        get = self.calls.get
        self.links = LinkHooks(
            scope=get("scope"),
            filter_=get("filter"),
            priority=get("priority"),
            enqueued=get("enqueued"),
        )
        self.pages = PageHooks(self.calls)
        delays = get("compute_delay")
        self.delays = None if delays is None else DelayHook(delays)

    def terms(self, usual: Callable[[str], Terms] | None) -> Callable[[str], Terms] | None:
        """Return the terms of a page's schedule, with the weight of `Hooks.recrawl_weight`."""
        call = self.calls.get("recrawl_weight")
        if call is None:
            return usual
        from krowlspider.recrawl.value import USUAL  # noqa: PLC0415 - if it is overridden

        def terms_of(url: str) -> Terms:
            found = USUAL if usual is None else usual(url)
            weight = call.now(url)
            if weight is None:
                return found
            if type(weight) not in (int, float) or not 0 < weight < 1e9:
                call.failed(HookError(f"{weight!r} is no weight above 0"))
                return found
            return found._replace(weight=float(weight))

        return terms_of

    def cut_off(self) -> list[str]:
        """Return a phrase for each hook that is cut off."""
        return [f"{each.name} ({each.cut})" for each in self.calls.values() if each.cut]


def hooked(crawler: Crawler) -> Hooked:
    """Return the hooks of KROWL_HOOKS.

    :raises SettingsError: there is no such class, or it cannot be used
    """
    settings, path = crawler.settings, crawler.settings["KROWL_HOOKS"]
    try:
        kind: Any = load_object(path)
        if not (isinstance(kind, type) and issubclass(kind, Hooks)):
            raise HookError("is no class derived from krowlspider.hooks.Hooks")
        make = getattr(kind, "from_crawler", None)
        hooks: Hooks = kind() if make is None else make(crawler)
        names = overridden(hooks)
        if wrong := [name for name in names if _waits(hooks, name)]:
            raise HookError(f"has {wrong[0]}() as a coroutine: where it is called nothing can wait")
        made = Hooked(
            hooks,
            timeout=settings.getfloat("KROWL_HOOKS_TIMEOUT"),
            fetch_timeout=settings.getfloat("DOWNLOAD_TIMEOUT"),
            count=crawler.stats.inc_value,
        )
    except Exception as error:
        raise SettingsError(f"KROWL_HOOKS={path!r} cannot be used: {error}") from error
    logger.info("KROWL_HOOKS: %s overrides %s", path, ", ".join(sorted(names)))
    return made


def _waits(hooks: Hooks, name: str) -> bool:
    return name in SYNC and iscoroutinefunction(getattr(hooks, name))
