"""What Scrapy's settings of politeness mean here.

They can make a crawl slower than the KROWL_ settings do, and never faster.
"""

from __future__ import annotations

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings

from krowlspider.config.kinds import Checker, boolean, integer, number, seconds
from krowlspider.fetch.guard import is_address
from krowlspider.urls.canonical import host_of, normalise

delay = seconds(high=86_400)
_SLOT_CHECKERS: dict[str, Checker] = {
    "delay": delay,
    "concurrency": integer(1, "requests"),
    "jitter": number(0, "of the delay"),
    "randomize_delay": boolean,
    "throttle": boolean,
}
_requests = integer(0, "requests")


def slots(settings: BaseSettings, name: str) -> str | None:
    """Return what is wrong with DOWNLOAD_SLOTS, as the checkers of `krowlspider.config.kinds` do;
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
        if "delay" in slot and (host := host_of_slot(str(name))) is not None:
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
    is_on = settings.getbool("AUTOTHROTTLE_ENABLED") and is_set(settings, name)
    return settings.getfloat(name) if is_on else 0.0


def is_set(settings: BaseSettings, name: str) -> bool:
    """Return whether somebody has set a setting."""
    return (settings.getpriority(name) or 0) > SETTINGS_PRIORITIES["default"]


def host_of_slot(name: str) -> str | None:
    """Return the host of a name in DOWNLOAD_SLOTS; None for a name that no host has."""
    if is_address(name) and ":" in name:
        name = f"[{name}]"
    # The default port of either scheme is no part of a host.
    url = normalise(f"https://{name}/" if name.endswith(":443") else f"http://{name}/")
    return host_of(url) if url and url.count("/") == 3 else None
