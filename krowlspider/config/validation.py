"""Check all settings before anything uses them, so that no crawl starts with a wrong one."""

from __future__ import annotations

import re
from difflib import get_close_matches
from math import inf
from os import environ
from typing import TYPE_CHECKING

from krowlspider import settings as defaults
from krowlspider.archive.payloads.digests import ALGORITHMS
from krowlspider.archive.upload.destination import Destination, is_endpoint
from krowlspider.archive.write.compression import COMPRESSIONS
from krowlspider.config import checks as config_checks
from krowlspider.config.checks import integer, number
from krowlspider.config.credentials import IN_FILES, keep_out_of_logs, read_files
from krowlspider.config.guarantees import misplaced, missing
from krowlspider.errors import SettingsError

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings, Settings

    from krowlspider.config.checks import Checker

KNOWN = frozenset(name for name in vars(defaults) if name.startswith("KROWL_"))

_ASYNCIO_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
# A product token (RFC 9309, section 2.2.1).
_AGENT_NAME = r"[A-Za-z_-]+"
# As the archive takes it, but without a leading hyphen, which tools would read as an option.
_FILE_PREFIX = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
# User and password of s3://KEY:SECRET@bucket; secrets may have slashes.
_USER = re.compile(r"//\S*@")
# An error about these does not show the value.
_SECRET = set(IN_FILES)
# The cluster's name is part of keys and names in Consul and Redis.
_CLUSTER_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
_DAY = 86_400.0
_OPTIONAL = {"KROWL_EXCLUDE", "KROWL_WARC_DIR", "KROWL_WARC_UPLOAD", "KROWL_WARC_UPLOAD_ENDPOINT"}

_seconds = number(0, inf, "seconds", above=True)


def _bucket(settings: BaseSettings, name: str) -> str | None:
    """Check a place in a bucket, ``s3://bucket/prefix``; None is valid."""
    value = settings.get(name)
    if value is None:
        return None
    try:
        Destination.parse(str(value))
    except ValueError as error:
        return str(error)
    return None


def _endpoint(settings: BaseSettings, name: str) -> str | None:
    """Check the URL of a server; None is valid."""
    value = settings.get(name)
    if value is None or (isinstance(value, str) and is_endpoint(value)):
        return None
    return "is not the http(s) URL of a server, without user or password"


# Each setting and its checker.
CHECKERS: dict[str, Checker] = {
    "KROWL_CONTACT": config_checks.contact,
    "KROWL_CONNECT_TIMEOUT": _seconds,
    "KROWL_FIRST_BYTE_TIMEOUT": _seconds,
    "KROWL_BODY_RATE_MIN": integer(0, "bytes a second"),
    "KROWL_KEEPALIVE": number(0, inf, "seconds"),
    "KROWL_MEMORY_LIMIT": integer(0, "bytes"),
    "KROWL_SESSION_REQUESTS": integer(1, "requests"),
    "KROWL_ALLOW_ADDRESSES": config_checks.each(
        config_checks.is_network, "networks such as 10.0.0.0/8"
    ),
    "KROWL_PORTS": config_checks.link_ports,
    "KROWL_RESOLVE": config_checks.names_to_addresses,
    "KROWL_DNS_SERVERS": config_checks.each(
        config_checks.is_server, "addresses such as 1.2.3.4 or 1.2.3.4:53"
    ),
    "KROWL_DNS_TIMEOUT": _seconds,
    "KROWL_DELAY_FACTOR": number(0, inf, "times the latency"),
    "KROWL_DELAY_MIN": number(0, inf, "seconds"),
    "KROWL_DELAY_MAX": number(0, inf, "seconds"),
    "KROWL_CRAWL_DELAY_MAX": number(0, inf, "seconds"),
    "KROWL_RETRY_AFTER_MAX": number(0, inf, "seconds"),
    "KROWL_DOMAIN_CONCURRENCY": integer(1, "requests"),
    "KROWL_IP_CONCURRENCY": integer(0, "requests"),
    "KROWL_IP_DELAY_MIN": number(0, 60, "seconds"),
    # RFC 9309, section 2.4: not longer than a day.
    "KROWL_ROBOTS_TTL": number(0, _DAY, "seconds", above=True),
    "KROWL_RETRY_DELAY": number(0, inf, "seconds"),
    "KROWL_THROTTLING_TIMES": integer(0, "times"),
    "KROWL_SITEMAPS": config_checks.boolean,
    "KROWL_COMMIT_INTERVAL": number(0, 60, "seconds", above=True),
    "KROWL_HOST_QUEUE_MAX": integer(1, "URLs"),
    "KROWL_DOMAIN_BUDGET": integer(0, "URLs"),
    "KROWL_DOMAIN_SHARE": number(0, 1, "of the frontier"),
    "KROWL_FRONTIER_MAX": integer(1, "URLs"),
    "KROWL_SEEN_CAPACITY": integer(1, "URLs"),
    "KROWL_SEEN_VERIFY": config_checks.boolean,
    "KROWL_EXCLUDE": config_checks.file,
    "KROWL_PATH_DEPTH_MAX": integer(0, "segments"),
    "KROWL_REPEATED_SEGMENTS_MAX": integer(0, "times"),
    "KROWL_SKIP_EXTENSIONS": config_checks.each(
        config_checks.is_extension, "extensions such as zip"
    ),
    "KROWL_DUPLICATE_BODIES_MAX": integer(0, "pages"),
    "KROWL_FOLLOW_NOFOLLOW": config_checks.boolean,
    "KROWL_CLUSTER": config_checks.text(_CLUSTER_NAME, "1 to 63 letters, digits, '_' and '-'"),
    "KROWL_NODE_ID": config_checks.node_id,
    "KROWL_CONSUL": config_checks.server_url,
    "KROWL_CONSUL_TOKEN": config_checks.token,
    # Consul takes no session with a shorter TTL.
    "KROWL_CONSUL_TTL": integer(10, "seconds"),
    "REDIS_URL": config_checks.redis_url,
    "KROWL_NODE_WEIGHT": config_checks.weight,
    "KROWL_DRAIN_TIMEOUT": number(0, _DAY, "seconds"),
    "KROWL_STATIC_NODES": config_checks.ring,
    "KROWL_STATIC_NODES_SECRET": config_checks.text(
        "|none|[!-~]{16,}", "at least 16 plain printable characters, or none"
    ),
    **{f"{name}_FILE": config_checks.text(".*", "the path of a file") for name in IN_FILES},
    "KROWL_CLUSTER_PAGES": integer(0, "pages"),
    "KROWL_INBOX_MAX": integer(1, "messages"),
    "KROWL_OUTBOX_MAX": integer(0, "URLs"),
    "KROWL_WARC_DIR": config_checks.folder,
    "KROWL_WARC_PREFIX": config_checks.text(_FILE_PREFIX, "of letters, digits, '.', '_' and '-'"),
    "KROWL_WARC_MAX_SIZE": integer(1, "bytes"),
    "KROWL_WARC_MAX_AGE": _seconds,
    "KROWL_WARC_DIGEST": config_checks.text("|".join(ALGORITHMS), " or ".join(ALGORITHMS)),
    "KROWL_WARC_COMPRESSION": config_checks.text(
        COMPRESSIONS.pattern, "isal-0 to isal-3, or zlib-ng-1 to zlib-ng-9"
    ),
    "KROWL_WARC_SKIP_STATUS": config_checks.each(config_checks.is_status, "status codes"),
    "KROWL_WARC_METADATA": config_checks.boolean,
    "KROWL_WARC_FAILURES": config_checks.boolean,
    "KROWL_WARC_DNS": config_checks.boolean,
    "KROWL_WARC_QUEUE": integer(1, "bytes"),
    "KROWL_WARC_REVISIT": config_checks.boolean,
    "KROWL_WARC_REVISIT_MAX": integer(2, "payloads"),
    "KROWL_WARC_UPLOAD": _bucket,
    "KROWL_WARC_UPLOAD_ENDPOINT": _endpoint,
    "KROWL_WARC_UPLOAD_DELETE": config_checks.boolean,
    "KROWL_DISK_FLOOR": integer(0, "bytes"),
    "KROWL_STATUS_INTERVAL": _seconds,
    "PROMETHEUS_ENABLED": config_checks.boolean,
    "PROMETHEUS_HOST": config_checks.text(r"[A-Za-z0-9._:-]+", "an address to listen at"),
    "PROMETHEUS_PORT": config_checks.ports,
    "PROMETHEUS_PATH": config_checks.text(r"/?[A-Za-z0-9._~/-]+", "a path such as metrics"),
    # Scrapy's settings that the crawl's components rely on.
    "TWISTED_REACTOR": config_checks.text(re.escape(_ASYNCIO_REACTOR), _ASYNCIO_REACTOR),
    "USER_AGENT": config_checks.user_agent,
    "ROBOTSTXT_USER_AGENT": config_checks.text(
        _AGENT_NAME, "a product token: letters, '_' and '-'"
    ),
    "ROBOTSTXT_OBEY": config_checks.boolean,
    "CONCURRENT_REQUESTS": integer(1, "requests"),
    "DOWNLOAD_TIMEOUT": _seconds,
    "DOWNLOAD_MAXSIZE": integer(1, "bytes"),
    "DNSCACHE_SIZE": integer(1, "names"),
    "RETRY_TIMES": integer(0, "times"),
    "RETRY_HTTP_CODES": config_checks.each(config_checks.is_status, "status codes"),
    "REDIRECT_MAX_TIMES": integer(0, "times"),
    # 0 is no limit, as in Scrapy.
    "URLLENGTH_LIMIT": integer(0, "characters"),
    "SCHEDULER": config_checks.component(
        defaults.SCHEDULER, "keeps the delay of each host, robots.txt and the queue on disk"
    ),
    "DUPEFILTER_CLASS": config_checks.component(
        defaults.DUPEFILTER_CLASS, "tells what the seen set knows"
    ),
    "DOWNLOADER": config_checks.component(
        defaults.DOWNLOADER, "fetches only what the scheduler has popped"
    ),
}


class ValidationAddon:
    """The Scrapy add-on that checks the settings of every crawl, those of the spider included."""

    def update_settings(self, settings: Settings) -> None:
        """:raises SettingsError: as `validate`"""
        keep_out_of_logs()
        validate(settings)


class LastCheck:
    """The extension that checks the settings again, and that all needed components are there.

    It runs after all add-ons have changed the settings, and before there is an engine. It also runs
    without `ValidationAddon`.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """:raises SettingsError: as `validate`, or a component is missing"""
        keep_out_of_logs()
        validate(crawler.settings)
        if lacking := missing(crawler.settings):
            raise SettingsError("; ".join(lacking))
        return cls()


def validate(settings: BaseSettings) -> None:
    """Read the secrets that are in files, then check all settings.

    These are every KROWL_ setting and those of Scrapy that the crawl's components rely on.

    :raises SettingsError: names every fault, joined by "; "
    """
    read_files(settings)
    given = _krowl_names(settings) - KNOWN | RENAMED.keys() & environ.keys()
    problems = [_unknown(name) for name in sorted(given)]
    problems += misplaced(settings)
    problems += [problem for name in CHECKERS if (problem := _problem(settings, name))]
    # Contradictions between two values can be found only if each value is valid.
    problems = problems or _contradictions(settings)
    if problems:
        raise SettingsError("; ".join(problems))


def _krowl_names(settings: BaseSettings) -> set[str]:
    return {name for name in settings if isinstance(name, str) and name.startswith("KROWL_")}


# Settings of version 0.1 and their names since 0.2.
RENAMED = {
    "KROWL_DISTRESS_TIMES": "KROWL_THROTTLING_TIMES",
    "KROWL_RING": "KROWL_STATIC_NODES",
    "KROWL_RING_FILE": "KROWL_STATIC_NODES_FILE",
    "KROWL_RING_SECRET": "KROWL_STATIC_NODES_SECRET",
    "KROWL_RING_SECRET_FILE": "KROWL_STATIC_NODES_SECRET_FILE",
}


def _unknown(name: str) -> str:
    if name in RENAMED:
        return f"{name} has been renamed: use {RENAMED[name]}"
    # Without the prefix, which makes every name alike.
    known = [other.removeprefix("KROWL_") for other in KNOWN]
    near = get_close_matches(name.removeprefix("KROWL_"), known, n=1)
    return f"{name} is not a setting" + (f": did you mean KROWL_{near[0]}?" if near else "")


def _problem(settings: BaseSettings, name: str) -> str | None:
    value = settings.get(name)
    if name == "KROWL_CONTACT" and (value is None or not str(value).strip()):
        return (
            "KROWL_CONTACT is not set: site owners must be able to reach you;"
            " give -s KROWL_CONTACT=you@example.org (or a URL)"
        )
    if value is None and name not in _OPTIONAL:
        # Scrapy's getters would read None as 0.
        return f"{name} is None: it must have a value"
    reason = CHECKERS[name](settings, name)
    if reason and name in _SECRET:
        return f"{name} {reason}"
    # One line for any value: repr() leaves no line break in text, split() none in the rest.
    return f"{name}={_bare(' '.join(repr(value).split()))} {reason}" if reason else None


def _bare(value: str) -> str:
    """Return a URL without the user and password that it may hold, because the error is logged."""
    return _USER.sub("//...@", value)


def _contradictions(settings: BaseSettings) -> list[str]:
    found = []
    low, high = settings.getfloat("KROWL_DELAY_MIN"), settings.getfloat("KROWL_DELAY_MAX")
    if low > high:
        found.append(f"KROWL_DELAY_MIN={low:g} is more than KROWL_DELAY_MAX={high:g}")
    limit, size = settings.getint("KROWL_MEMORY_LIMIT"), settings.getint("DOWNLOAD_MAXSIZE")
    if 0 < limit < 4 * size:
        found.append(
            f"KROWL_MEMORY_LIMIT={limit} is less than four times DOWNLOAD_MAXSIZE={size}: what one body may take"
        )
    if settings["KROWL_CONSUL"] and settings.getlist("KROWL_STATIC_NODES"):
        found.append(
            "KROWL_CONSUL and KROWL_STATIC_NODES are both set: the members come from one of them"
        )
    if settings["KROWL_CONSUL"] and not settings["REDIS_URL"]:
        found.append(
            "KROWL_CONSUL is set, and REDIS_URL is not: give this node's Redis, as the other nodes reach it"
        )
    return found
