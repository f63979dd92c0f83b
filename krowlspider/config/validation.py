"""Check all settings before anything uses them, so that no crawl starts with a wrong one."""

from __future__ import annotations

import logging
import re
from difflib import get_close_matches
from os import environ
from typing import TYPE_CHECKING

from scrapy.settings import BaseSettings

from krowlspider.config.credentials import IN_FILES, keep_out_of_logs, read_files
from krowlspider.config.guarantees import misplaced, missing
from krowlspider.config.ignored import misspelt, without_effect
from krowlspider.config.log import name_spider
from krowlspider.config.scrapy_politeness import is_set
from krowlspider.config.table import (
    CHECKERS,
    KNOWN,
    LISTS,
    ROWS,
    SCRAPYS,
    SIZES,
    read_lists,
    read_sizes,
)
from krowlspider.errors import SettingsError

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import Settings

logger = logging.getLogger(__name__)

# User and password of s3://KEY:SECRET@bucket; secrets may have slashes.
_USER = re.compile(r"//\S*@")


class ValidationAddon:
    """The Scrapy add-on that checks the settings of every crawl, those of the spider included."""

    def __init__(self, crawler: Crawler):
        self._spider: str = getattr(crawler.spidercls, "name", "")

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def update_settings(self, settings: Settings) -> None:
        """:raises SettingsError: as `validate`"""
        keep_out_of_logs()
        validate(settings)
        name_spider(settings, self._spider)


def check(settings: BaseSettings) -> None:
    """Check the settings of a crawler after all add-ons, and its components.

    Unlike the add-on, no setting can remove this: `krowlspider.crawl.crawls.crawl_of` calls it.

    :raises SettingsError: as `validate`, or a component that a guarantee needs is missing
    """
    keep_out_of_logs()
    validate(settings)
    if lacking := missing(settings):
        raise SettingsError("; ".join(lacking))
    for line in without_effect(settings):
        logger.warning("%s", line)
    for name, known in misspelt(map(str, settings)).items():
        logger.warning("%s is not a known setting: did you mean %s?", name, known)


def validate(settings: BaseSettings) -> None:
    """Read the secrets that are in files, and sizes and lists that are text; check all settings.

    These are every KROWL_ setting and those of Scrapy that the crawl's components rely on.

    :raises SettingsError: names every fault, joined by "; "
    """
    read_files(settings)
    # A crawler's settings are frozen after its add-ons, which have read them by then.
    if not settings.frozen:
        read_sizes(settings, SIZES)
        read_lists(settings, LISTS)
    ours = {name for name in settings if str(name).startswith("KROWL_")}
    ours |= {name for name in environ if name.startswith("KROWL_")}
    problems = [_unknown(name) for name in sorted(ours - KNOWN)]
    problems += misplaced(settings)
    problems += [fault for name in CHECKERS if (fault := problem(settings, name))]
    # Contradictions between two values can be found only if each value is valid.
    problems = problems or _contradictions(settings)
    if problems:
        raise SettingsError("; ".join(problems))


def offline(settings: Settings) -> Settings:
    """Return a copy of settings for a command that fetches nothing: it needs no contact, joins
    no cluster and writes no feed."""
    alone = settings.copy()
    alone.set("KROWL_CONTACT", "nobody@offline.internal", priority="cmdline")
    alone.setdict({"KROWL_CONSUL": "", "FEEDS": {}}, priority="cmdline")
    return alone


def _unknown(name: str) -> str:
    # Without the prefix, which makes every name alike.
    known = [other.removeprefix("KROWL_") for other in KNOWN]
    near = get_close_matches(name.removeprefix("KROWL_"), known, n=1)
    return f"{name} is not a setting" + (f": did you mean KROWL_{near[0]}?" if near else "")


def problem(settings: BaseSettings, name: str) -> str | None:
    """Return what is wrong with one setting, which has a checker, or None."""
    # Scrapy's getters warn of some names.
    value = settings[name]
    if name == "KROWL_CONTACT" and not str(value or "").strip():
        return (
            "KROWL_CONTACT is not set: site owners must be able to reach you;"
            " give -s KROWL_CONTACT=you@example.org (or a URL)"
        )
    if value is None:
        # Scrapy's getters would read None as 0.
        optional = name in SCRAPYS or ROWS[name].may_be_none
        return None if optional else f"{name} is None: it must have a value"
    fault = CHECKERS[name](settings, name)
    if fault is None:
        return None
    if name in IN_FILES:
        # The value is a secret.
        return f"{name} {fault}"
    if isinstance(value, BaseSettings):
        value = dict(value)
    # One line for any value: repr() leaves no line break in text, split() none in the rest.
    shown = _USER.sub("//...@", " ".join(repr(value).split()))
    return f"{name}={shown} {fault}"


def _contradictions(settings: BaseSettings) -> list[str]:
    found = []
    low, high = settings.getfloat("KROWL_DELAY_MIN"), settings.getfloat("KROWL_DELAY_MAX")
    if low > high:
        found.append(f"KROWL_DELAY_MIN={low:g} is more than KROWL_DELAY_MAX={high:g}")
    limit, size = settings.getint("KROWL_MEMORY_LIMIT"), settings.getint("DOWNLOAD_MAXSIZE")
    if 0 < limit < 4 * size:
        found.append(
            f"KROWL_MEMORY_LIMIT={limit} is less than four times DOWNLOAD_MAXSIZE={size},"
            " the most that one body may take"
        )
    user = settings.get("HTTPAUTH_USER") or settings.get("HTTPAUTH_PASS")
    if user and not is_set(settings, "HTTPAUTH_DOMAIN"):
        found.append(
            "HTTPAUTH_USER or HTTPAUTH_PASS is set, and HTTPAUTH_DOMAIN is not: give the domain"
            " that may see them, or None for all"
        )
    if settings.getlist("KROWL_WARC_DEDUP") and not settings.getbool("KROWL_WARC_REVISIT"):
        found.append("KROWL_WARC_DEDUP is set, and KROWL_WARC_REVISIT is False: set it to True")
    if settings["KROWL_CONSUL"] and not settings["REDIS_URL"]:
        found.append(
            "KROWL_CONSUL is set, and REDIS_URL is not: give this node's Redis, as the other nodes"
            " reach it"
        )
    return found
