"""Settings of Scrapy that have no effect in this project: what is done in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.settings import SETTINGS_PRIORITIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.settings import BaseSettings

_QUEUES = "requests wait in the frontier, hosts take turns, and a request's priority decides"
_TLS = "TLS 1.2 and 1.3 are accepted with any certificate"
_RESOLVER = "the project has its own resolver, with KROWL_DNS_TIMEOUT and DNSCACHE_SIZE"
# By name: the value that asks for what is done anyway (None: there is none), and the reason.
_IGNORED: dict[str, tuple[bool | None, str]] = {
    "REFERER_ENABLED": (
        False,
        "no Referer is sent. To send it, add Scrapy's RefererMiddleware to SPIDER_MIDDLEWARES",
    ),
    "METAREFRESH_ENABLED": (
        False,
        (
            "the broad spider follows refreshes as links; for other spiders add Scrapy's"
            " MetaRefreshMiddleware to DOWNLOADER_MIDDLEWARES"
        ),
    ),
    "COMPRESSION_ENABLED": (True, "compressed bodies are asked for and decoded"),
    "DOWNLOAD_FAIL_ON_DATALOSS": (True, "a request whose body is cut off fails"),
    "DOWNLOAD_BIND_ADDRESS": (None, "the operating system chooses the address to connect from"),
    "DOWNLOAD_VERIFY_CERTIFICATES": (False, _TLS),
    "DOWNLOAD_TLS_MIN_VERSION": (None, _TLS),
    "DOWNLOAD_TLS_MAX_VERSION": (None, _TLS),
    "DOWNLOADER_CLIENTCONTEXTFACTORY": (None, _TLS),
    "DOWNLOADER_CLIENT_TLS_CIPHERS": (None, _TLS),
    "DOWNLOADER_CLIENT_TLS_METHOD": (None, _TLS),
    "DNS_TIMEOUT": (None, _RESOLVER),
    "DNS_RESOLVER": (None, _RESOLVER),
    "TWISTED_DNS_RESOLVER": (None, _RESOLVER),
    "DNSCACHE_ENABLED": (True, _RESOLVER),
    "ROBOTSTXT_PARSER": (None, "robots.txt is read as RFC 9309 says, by the project's own parser"),
    "DUPEFILTER_DEBUG": (False, "the stat dupefilter/filtered counts the known URLs"),
    "SCHEDULER_DEBUG": (False, "an error in the log names each request that cannot be queued"),
    "LOGSTATS_INTERVAL": (None, "the status line comes every KROWL_STATUS_INTERVAL seconds"),
    "SCHEDULER_PRIORITY_QUEUE": (None, _QUEUES),
    "SCHEDULER_DISK_QUEUE": (None, _QUEUES),
    "SCHEDULER_MEMORY_QUEUE": (None, _QUEUES),
    "SCHEDULER_START_DISK_QUEUE": (None, _QUEUES),
    "SCHEDULER_START_MEMORY_QUEUE": (None, _QUEUES),
}


def ignored(settings: BaseSettings) -> Iterator[str]:
    """Yield a line for each setting that somebody has set and that has no effect, with what is done
    in its place."""
    for name, (done_anyway, why) in _IGNORED.items():
        if (settings.getpriority(name) or 0) <= SETTINGS_PRIORITIES["default"]:
            continue
        value = settings[name]
        if value is None or (done_anyway is not None and settings.getbool(name) is done_anyway):
            continue
        yield f"{name}={value} has no effect: {why}"
