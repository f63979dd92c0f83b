"""Values of Scrapy's settings that have no effect in this project: what is done in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from krowlspider.config.scrapy_politeness import host_of_slot, is_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.settings import BaseSettings

# Takes a value, and a getter of other settings; returns whether the value has no effect. None: no
# value has an effect.
_Get: TypeAlias = "Callable[[str], float]"
_Test: TypeAlias = "Callable[[float, _Get], bool] | None"


def _if_on(value: float, _: _Get) -> bool:
    return bool(value)


def _if_off(value: float, _: _Get) -> bool:
    return not value


def _if_several(value: float, _: _Get) -> bool:
    return value > 1


def _if_short(value: float, of: _Get) -> bool:
    return value < of("KROWL_DELAY_MIN")


_NO_JITTER = "a delay is a minimum; above it, it follows the latency of the host"
_QUEUES = "requests wait in the frontier, hosts take turns, and a request's priority decides"
_TLS = "TLS 1.2 and 1.3 are accepted with any certificate"
_RESOLVER = "the project has its own resolver, with KROWL_DNS_TIMEOUT and DNSCACHE_SIZE"
# By name: which values have no effect, and the reason.
_TESTS: dict[str, tuple[_Test, str]] = {
    "DOWNLOAD_DELAY": (_if_short, "KROWL_DELAY_MIN is longer"),
    "DOWNLOAD_DELAY_JITTER": (_if_on, _NO_JITTER),
    "RANDOMIZE_DOWNLOAD_DELAY": (_if_on, _NO_JITTER),
    "CONCURRENT_REQUESTS_PER_DOMAIN": (
        _if_several,
        "a host has one request in flight; for a domain, set KROWL_DOMAIN_CONCURRENCY",
    ),
    "CONCURRENT_REQUESTS_PER_IP": (
        lambda value, of: 0 < of("KROWL_IP_CONCURRENCY") < value,
        "KROWL_IP_CONCURRENCY is lower",
    ),
    "REFERER_ENABLED": (
        _if_on,
        "no Referer is sent. To send it, add Scrapy's RefererMiddleware to SPIDER_MIDDLEWARES",
    ),
    "METAREFRESH_ENABLED": (
        _if_on,
        (
            "the broad spider follows refreshes as links; for other spiders add Scrapy's"
            " MetaRefreshMiddleware to DOWNLOADER_MIDDLEWARES"
        ),
    ),
    "COMPRESSION_ENABLED": (_if_off, "compressed bodies are asked for and decoded"),
    "DOWNLOAD_FAIL_ON_DATALOSS": (_if_off, "a request whose body is cut off fails"),
    "DOWNLOAD_BIND_ADDRESS": (None, "the operating system chooses the address to connect from"),
    "DOWNLOAD_VERIFY_CERTIFICATES": (_if_on, _TLS),
    "DOWNLOAD_TLS_MIN_VERSION": (None, _TLS),
    "DOWNLOAD_TLS_MAX_VERSION": (None, _TLS),
    "DOWNLOADER_CLIENTCONTEXTFACTORY": (None, _TLS),
    "DOWNLOADER_CLIENT_TLS_CIPHERS": (None, _TLS),
    "DOWNLOADER_CLIENT_TLS_METHOD": (None, _TLS),
    "DNS_TIMEOUT": (None, _RESOLVER),
    "DNS_RESOLVER": (None, _RESOLVER),
    "TWISTED_DNS_RESOLVER": (None, _RESOLVER),
    "DNSCACHE_ENABLED": (_if_off, _RESOLVER),
    "ROBOTSTXT_PARSER": (
        None,
        "robots.txt is read as RFC 9309 says, by the project's own parser",
    ),
    "DUPEFILTER_DEBUG": (_if_on, "the stat dupefilter/filtered counts the known URLs"),
    "SCHEDULER_DEBUG": (_if_on, "an error in the log names each request that cannot be queued"),
    "LOGSTATS_INTERVAL": (None, "the status line comes every KROWL_STATUS_INTERVAL seconds"),
    "SCHEDULER_PRIORITY_QUEUE": (None, _QUEUES),
    "SCHEDULER_DISK_QUEUE": (None, _QUEUES),
    "SCHEDULER_MEMORY_QUEUE": (None, _QUEUES),
    "SCHEDULER_START_DISK_QUEUE": (None, _QUEUES),
    "SCHEDULER_START_MEMORY_QUEUE": (None, _QUEUES),
}
_AUTOTHROTTLE_TESTS: dict[str, tuple[_Test, str]] = {
    "AUTOTHROTTLE_TARGET_CONCURRENCY": (
        _if_several,
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
        _if_on,
        "`scrapy frontier JOBDIR --host NAME` shows the delay of a host",
    ),
}
# Parts of a slot. No other part has an effect.
_SLOT_TESTS: dict[str, _Test] = {
    "delay": _if_short,
    "concurrency": _if_several,
    "jitter": _if_on,
    "randomize_delay": _if_on,
    "throttle": _if_off,
}
# Most parts of slots that are named in the log.
_NAMED = 5


def without_effect(settings: BaseSettings) -> Iterator[str]:
    """Yield a line for each setting that somebody has set and that has no effect: why, and what is
    done or can be set in its place."""
    is_on = settings.getbool("AUTOTHROTTLE_ENABLED")
    for name, (test, why) in {**_TESTS, **(_AUTOTHROTTLE_TESTS if is_on else {})}.items():
        value = settings[name]
        if value is not None and is_set(settings, name) and _is_idle(test, value, settings):
            yield f"{name}={value} has no effect: {why}"
    if parts := list(_slot_parts(settings)):
        more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
        yield (
            f"DOWNLOAD_SLOTS has parts with no effect ({', '.join(parts[:_NAMED])}{more}): a slot"
            " is a host, has one request in flight, and waits KROWL_DELAY_MIN at least"
        )


def _slot_parts(settings: BaseSettings) -> Iterator[str]:
    """Yield the parts of DOWNLOAD_SLOTS that have no effect."""
    for name, slot in settings.getdict("DOWNLOAD_SLOTS").items():
        if host_of_slot(str(name)) is None:
            yield repr(name)
            continue
        for key, value in slot.items():
            if _is_idle(_SLOT_TESTS.get(key), value, settings):
                yield f"{key} of {name}"


def _is_idle(test: _Test, value: Any, settings: BaseSettings) -> bool:
    """Return whether a checked value has no effect; `true` and `false` as text are 1 and 0."""
    if test is None:
        return True
    number = float({"true": 1, "false": 0}.get(str(value).lower(), value))
    return test(number, settings.getfloat)
