"""What Scrapy's settings of politeness mean here.

They can make a crawl slower than the KROWL_ settings do, and never faster. The log names those that
are set and have no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings

from krowlspider.config.checks import boolean, integer, number
from krowlspider.fetch.dns.hosts_file import is_address
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Takes a value, and a getter of other settings; returns whether the value has no effect.
_Test: TypeAlias = "Callable[[float, Callable[[str], float]], bool]"

DELAY_MAX = 86_400.0
_SLOT_CHECKERS = {
    "delay": number(0, "seconds", high=DELAY_MAX),
    "concurrency": integer(1, "requests"),
    "jitter": number(0, "of the delay"),
    "randomize_delay": boolean,
    "throttle": boolean,
}
_requests = integer(0, "requests")
# Parts of a slot, and whether a value has no effect. No other part has an effect.
_SLOT_TESTS: dict[str, _Test] = {
    "delay": lambda value, of: value < of("KROWL_DELAY_MIN"),
    "concurrency": lambda value, _: value > 1,
    "jitter": lambda value, _: bool(value),
    "randomize_delay": lambda value, _: bool(value),
    "throttle": lambda value, _: not value,
}
# Most parts of slots that are named in the log.
_NAMED = 5
_NO_JITTER = "a delay is a minimum; above it, it follows the latency of the host"
_TESTS: dict[str, tuple[_Test, str]] = {
    "DOWNLOAD_DELAY": (_SLOT_TESTS["delay"], "KROWL_DELAY_MIN is longer"),
    "DOWNLOAD_DELAY_JITTER": (_SLOT_TESTS["jitter"], _NO_JITTER),
    "RANDOMIZE_DOWNLOAD_DELAY": (_SLOT_TESTS["jitter"], _NO_JITTER),
    "CONCURRENT_REQUESTS_PER_DOMAIN": (
        _SLOT_TESTS["concurrency"],
        "a host has one request in flight; for a domain, set KROWL_DOMAIN_CONCURRENCY",
    ),
    "CONCURRENT_REQUESTS_PER_IP": (
        lambda value, of: 0 < of("KROWL_IP_CONCURRENCY") < value,
        "KROWL_IP_CONCURRENCY is lower",
    ),
}
_AUTOTHROTTLE_TESTS: dict[str, tuple[_Test, str]] = {
    "AUTOTHROTTLE_TARGET_CONCURRENCY": (
        _SLOT_TESTS["concurrency"],
        "a host has one request in flight; for shorter delays, set KROWL_DELAY_FACTOR",
    ),
    "AUTOTHROTTLE_START_DELAY": (
        lambda value, of: value > max(of("KROWL_DELAY_MIN"), of("DOWNLOAD_DELAY")),
        "the first answer of a host sets its delay; for a minimum, set DOWNLOAD_DELAY",
    ),
    "AUTOTHROTTLE_MAX_DELAY": (
        lambda value, of: value < of("KROWL_DELAY_MAX"),
        "KROWL_DELAY_MAX is longer",
    ),
    "AUTOTHROTTLE_DEBUG": (
        _SLOT_TESTS["jitter"],
        "`scrapy frontier JOBDIR --host NAME` shows the delay of a host",
    ),
}


def slots(settings: BaseSettings, name: str) -> str | None:
    """Return what is wrong with DOWNLOAD_SLOTS, as the checkers of `krowlspider.config.checks` do;
    None if it is valid."""
    for host, slot in settings.getdict(name).items():
        if not isinstance(slot, dict):
            return f"has {slot!r} for {host!r}, which is not a mapping such as {{'delay': 5}}"
        for key in filter(slot.__contains__, _SLOT_CHECKERS):
            # A getter would read None as 0.
            values = BaseSettings({key: "None" if slot[key] is None else slot[key]})
            if fault := _SLOT_CHECKERS[key](values, key):
                return f"has {key}={slot[key]!r} for {host!r}, which {fault}"
    return None


def requests_per_ip(settings: BaseSettings, name: str) -> str | None:
    """Return what is wrong with CONCURRENT_REQUESTS_PER_IP; None if it is valid.

    Scrapy's getters warn of this setting, so they are not used.
    """
    return _requests(BaseSettings({"requests": settings[name]}), "requests")


def slot_delays(settings: BaseSettings) -> dict[str, float]:
    """Return the delays of DOWNLOAD_SLOTS in seconds, by host: of several slots the longest."""
    delays: dict[str, float] = {}
    for name, slot in settings.getdict("DOWNLOAD_SLOTS").items():
        if "delay" in slot and (host := _host(str(name))) is not None:
            delays[host] = max(delays.get(host, 0.0), float(slot["delay"]))
    return delays


def requests_per_address(settings: BaseSettings) -> int:
    """Return how many requests to an address may be in flight; 0: no limit."""
    limits = settings["KROWL_IP_CONCURRENCY"], settings["CONCURRENT_REQUESTS_PER_IP"]
    return min((int(limit) for limit in limits if limit and int(limit)), default=0)


def autothrottle_factor(settings: BaseSettings) -> float:
    """Return the factor of the latency that AutoThrottle asks for; 0 if it is off.

    At a target concurrency of 0.25, a request begins every four latencies, and takes one of them.
    """
    if not settings.getbool("AUTOTHROTTLE_ENABLED"):
        return 0.0
    return 1 / settings.getfloat("AUTOTHROTTLE_TARGET_CONCURRENCY") - 1


def autothrottle_maximum(settings: BaseSettings) -> float:
    """Return AUTOTHROTTLE_MAX_DELAY in seconds; 0 if it is not set, or AutoThrottle is off."""
    name = "AUTOTHROTTLE_MAX_DELAY"
    is_on = settings.getbool("AUTOTHROTTLE_ENABLED") and _is_set(settings, name)
    return settings.getfloat(name) if is_on else 0.0


def without_effect(settings: BaseSettings) -> Iterator[str]:
    """Yield a line for each setting that is set and has no effect: why, and what to set instead."""
    is_on = settings.getbool("AUTOTHROTTLE_ENABLED")
    for name, (test, why) in {**_TESTS, **(_AUTOTHROTTLE_TESTS if is_on else {})}.items():
        if _is_set(settings, name) and test(_number(settings[name]), settings.getfloat):
            yield f"{name}={settings[name]} has no effect: {why}"
    if parts := list(_slot_parts(settings)):
        more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
        yield (
            f"DOWNLOAD_SLOTS has parts with no effect ({', '.join(parts[:_NAMED])}{more}): a slot"
            " is a host, has one request in flight, and waits KROWL_DELAY_MIN at least"
        )


def _slot_parts(settings: BaseSettings) -> Iterator[str]:
    """Yield the parts of DOWNLOAD_SLOTS that have no effect."""
    for name, slot in settings.getdict("DOWNLOAD_SLOTS").items():
        if _host(str(name)) is None:
            yield repr(name)
            continue
        for key, value in slot.items():
            test = _SLOT_TESTS.get(key)
            if test is None or test(_number(value), settings.getfloat):
                yield f"{key} of {name}"


def _is_set(settings: BaseSettings, name: str) -> bool:
    return (settings.getpriority(name) or 0) > SETTINGS_PRIORITIES["default"]


def _number(value: Any) -> float:
    """Return a checked value as a number; `true` and `false` as text are 1 and 0."""
    return float({"true": 1, "false": 0}.get(str(value).lower(), value))


def _host(name: str) -> str | None:
    """Return the host of a slot's name; None for a name that no host has."""
    if is_address(name) and ":" in name:
        name = f"[{name}]"
    # The default port of either scheme is no part of a host.
    url = normalise(f"https://{name}/" if name.endswith(":443") else f"http://{name}/")
    return host_of(url) if url and url.count("/") == 3 else None
