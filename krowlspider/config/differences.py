"""What a project finds changed once it has the add-on, by its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy.addons import AddonManager
from scrapy.crawler import Crawler
from scrapy.utils.python import global_object_name

from krowlspider.config.guarantees import missing, out_of_place
from krowlspider.config.scrapy_politeness import is_set
from krowlspider.config.validation import misspelt, without_effect
from krowlspider.errors import SettingsError
from krowlspider.settings import defaults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Spider
    from scrapy.settings import BaseSettings, Settings

_REDIS = (
    "scrapy-redis: remove SCHEDULER and DUPEFILTER_CLASS; requests are queued in JOBDIR, not in"
    " Redis. RedisSpider, its list of start URLs and RedisPipeline work as before"
)
_PLAYWRIGHT = (
    "scrapy-playwright: its pages are fetched by the same delays and robots.txt, and are not"
    " archived; what the browser loads beside a page is neither checked nor delayed. With"
    " KROWL_BROWSER in place of its handler, all of this is done (docs/browser.md)"
)
_AUTOTHROTTLE = (
    "AutoThrottle: the delay of a host follows its latency without it too; it makes delays longer"
    " only by AUTOTHROTTLE_TARGET_CONCURRENCY below 1 and by AUTOTHROTTLE_MAX_DELAY"
)
_HTTPCACHE = (
    "HTTP cache: an answer from the cache is not archived, and its host has no delay after it;"
    " robots.txt never comes from the cache"
)
_USER_AGENTS = (
    "has no effect on what is sent: the User-Agent of each request is that of USER_AGENT, with the"
    " contact"
)


class Differences(NamedTuple):
    """``refusals`` say why a start would be refused, ``notes`` what works in another way."""

    refusals: list[str]
    notes: list[str]


def differences(settings: Settings, spider: type[Spider], *, frontier: bool) -> Differences:
    """Return what differs for a spider. The settings are those of its project, with the add-on.

    Without a ``frontier`` Scrapy's own components crawl, and only wrong settings are named.

    This loads the components that the settings name, for which a reactor must be installed.
    """
    notes = list(_of_packages(Crawler(spider, settings).settings)) if frontier else []
    # As a start does: a spider changes what the add-on has set.
    settings = settings.copy()
    AddonManager.load_pre_crawler_settings(settings)
    crawler = Crawler(spider, settings)
    try:
        crawler.addons.load_settings(crawler.settings)
    except SettingsError as error:
        # Values that are not valid cannot be compared.
        return Differences([str(error)], notes)
    if not frontier:
        return Differences([], [])
    notes += [*without_effect(crawler.settings), *out_of_place(crawler.settings)]
    unknown = misspelt(map(str, crawler.settings)).items()
    notes += [f"{name} is not a known setting: did you mean {known}?" for name, known in unknown]
    return Differences(missing(crawler.settings), notes)


def _of_packages(settings: BaseSettings) -> Iterator[str]:
    named = {component_path(settings[name]) for name in ("SCHEDULER", "DUPEFILTER_CLASS")}
    if any(path.startswith("scrapy_redis.") for path in named):
        yield _REDIS
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS").values()
    if any(component_path(each).startswith("scrapy_playwright.") for each in handlers if each):
        yield _PLAYWRIGHT
    if settings.getbool("AUTOTHROTTLE_ENABLED"):
        yield _AUTOTHROTTLE
    if settings.getbool("HTTPCACHE_ENABLED"):
        yield _HTTPCACHE
    for component, order in settings.getdict("DOWNLOADER_MIDDLEWARES").items():
        path = component_path(component)
        is_on = order is not None and not path.startswith("scrapy.")
        if is_on and "useragent" in path.lower():
            yield f"{path} {_USER_AGENTS}"
    ours = defaults["CONCURRENT_REQUESTS"]
    if is_set(settings, "CONCURRENT_REQUESTS") and settings.getint("CONCURRENT_REQUESTS") < ours:
        yield (
            f"CONCURRENT_REQUESTS={settings['CONCURRENT_REQUESTS']} holds for all hosts together;"
            f" without it, it is {ours}"
        )


def component_path(component: Any) -> str:
    return component if isinstance(component, str) else global_object_name(component)
