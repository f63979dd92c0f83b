"""The settings that a person may change while the crawl runs, and the check of their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.config.validation import validate
from krowlspider.crawl.parts import delay_policy
from krowlspider.errors import SettingsError

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

    from krowlspider.politeness.delay import DelayPolicy

# Each setting of the delays, with its field of the policy.
DELAYS = {
    "KROWL_DELAY_FACTOR": "factor",
    "KROWL_DELAY_MIN": "minimum",
    "KROWL_DELAY_MAX": "maximum",
}
# ``max_pages`` is the argument of the spider.
LIVE = (*DELAYS, "CONCURRENT_REQUESTS", "KROWL_SITEMAPS", "LOG_LEVEL", "max_pages")


def changed(settings: BaseSettings, name: str, value: object, policy: DelayPolicy) -> BaseSettings:
    """Return a copy of the settings with another value for one of LIVE, without ``max_pages``.

    ``policy`` has the delays as they are now.

    :raises SettingsError: it cannot be changed while the crawl runs, or the value is invalid
    """
    if name not in LIVE:
        raise SettingsError(
            f"{name!r} cannot be changed while the crawl runs: {', '.join(LIVE)} can; give it at"
            " the next start"
        )
    made = settings.copy()
    made.frozen = False
    now = {each: getattr(policy, field) for each, field in DELAYS.items()}
    made.update(now, "cmdline")
    made.set(name, value, "cmdline")
    validate(made)
    if name == "CONCURRENT_REQUESTS" and made.getint(name) > settings.getint(name):
        raise SettingsError(
            f"CONCURRENT_REQUESTS={made.getint(name)} is more than the {settings.getint(name)} of"
            " the start, for which memory and connections are laid out: start with more"
        )
    return made


def new_delay(settings: BaseSettings, name: str) -> float:
    """Return what a setting of DELAYS makes of the policy; Scrapy's settings can only make it
    slower."""
    value: float = getattr(delay_policy(settings), DELAYS[name])
    return value


def page_limit(value: object) -> int:
    """Return the value of ``max_pages``.

    :raises SettingsError: it is no number of pages
    """
    text = str(value)
    if not (text.isascii() and text.isdigit() and 0 < int(text[:19]) < 10**18):
        raise SettingsError(f"max_pages={text[:40]!r} is not a number of pages, 1 or more")
    return int(text)
