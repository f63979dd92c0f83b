"""Checks settings before anything is built on them, so that a crawl never starts on a wrong one."""

from __future__ import annotations

import re
from difflib import get_close_matches
from math import inf
from typing import TYPE_CHECKING

from krowlspider import checkers
from krowlspider import settings as defaults
from krowlspider.archive.compression import COMPRESSIONS
from krowlspider.archive.digests import ALGORITHMS
from krowlspider.archive.upload import Destination, is_endpoint
from krowlspider.checkers import integer, number
from krowlspider.credentials import IN_FILES, keep_out_of_logs, read_files
from krowlspider.errors import SettingsError

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings, Settings

    from krowlspider.checkers import Checker

KNOWN = frozenset(name for name in vars(defaults) if name.startswith("KROWL_"))

_ASYNCIO_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
# A product token: RFC 9309, section 2.2.1.
_AGENT_NAME = r"[A-Za-z_-]+"
# As the archive takes it, but for a leading hyphen, which tools would read as an option.
_FILE_PREFIX = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
# Of s3://KEY:SECRET@bucket; secrets may have slashes.
_USER = re.compile(r"//\S*@")
# What is wrong with them is told without what they are.
_SECRET = set(IN_FILES)
# Part of keys and names in Consul and Redis.
_CLUSTER_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
_DAY = 86_400.0
_OPTIONAL = {"KROWL_EXCLUDE", "KROWL_WARC_DIR", "KROWL_WARC_UPLOAD", "KROWL_WARC_UPLOAD_ENDPOINT"}

_seconds = number(0, inf, "seconds", above=True)


def _bucket(settings: BaseSettings, name: str) -> str | None:
    """A place in a bucket, ``s3://bucket/prefix``; None is none."""
    value = settings.get(name)
    if value is None:
        return None
    try:
        Destination.parse(str(value))
    except ValueError as error:
        return str(error)
    return None


def _endpoint(settings: BaseSettings, name: str) -> str | None:
    """The URL of a server; None is none."""
    value = settings.get(name)
    if value is None or (isinstance(value, str) and is_endpoint(value)):
        return None
    return "is not the http(s) URL of a server, without user or password"


# Each setting and what it may be; with `above` the lower bound is excluded.
CHECKERS: dict[str, Checker] = {
    "KROWL_CONTACT": checkers.contact,
    "KROWL_CONNECT_TIMEOUT": _seconds,
    "KROWL_FIRST_BYTE_TIMEOUT": _seconds,
    "KROWL_BODY_RATE_MIN": integer(0, "bytes a second"),
    "KROWL_KEEPALIVE": number(0, inf, "seconds"),
    "KROWL_MEMORY_LIMIT": integer(0, "bytes"),
    "KROWL_SESSION_REQUESTS": integer(1, "requests"),
    "KROWL_ALLOW_ADDRESSES": checkers.each(checkers.is_network, "networks such as 10.0.0.0/8"),
    "KROWL_PORTS": checkers.link_ports,
    "KROWL_RESOLVE": checkers.names_to_addresses,
    "KROWL_DNS_SERVERS": checkers.each(
        checkers.is_server, "addresses such as 1.2.3.4 or 1.2.3.4:53"
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
    "KROWL_DISTRESS_TIMES": integer(0, "times"),
    "KROWL_SITEMAPS": checkers.boolean,
    "KROWL_COMMIT_INTERVAL": number(0, 60, "seconds", above=True),
    "KROWL_HOST_QUEUE_MAX": integer(1, "URLs"),
    "KROWL_DOMAIN_BUDGET": integer(0, "URLs"),
    "KROWL_DOMAIN_SHARE": number(0, 1, "of the frontier"),
    "KROWL_FRONTIER_MAX": integer(1, "URLs"),
    "KROWL_SEEN_CAPACITY": integer(1, "URLs"),
    "KROWL_SEEN_VERIFY": checkers.boolean,
    "KROWL_EXCLUDE": checkers.file,
    "KROWL_PATH_DEPTH_MAX": integer(0, "segments"),
    "KROWL_REPEATED_SEGMENTS_MAX": integer(0, "times"),
    "KROWL_SKIP_EXTENSIONS": checkers.each(checkers.is_extension, "extensions such as zip"),
    "KROWL_DUPLICATE_BODIES_MAX": integer(0, "pages"),
    "KROWL_FOLLOW_NOFOLLOW": checkers.boolean,
    "KROWL_CLUSTER": checkers.text(_CLUSTER_NAME, "1 to 63 letters, digits, '_' and '-'"),
    "KROWL_NODE_ID": checkers.node_id,
    "KROWL_CONSUL": checkers.server_url,
    "KROWL_CONSUL_TOKEN": checkers.token,
    # Consul takes no session of less.
    "KROWL_CONSUL_TTL": integer(10, "seconds"),
    "REDIS_URL": checkers.redis_url,
    "KROWL_NODE_WEIGHT": checkers.weight,
    "KROWL_DRAIN_TIMEOUT": number(0, _DAY, "seconds"),
    "KROWL_RING": checkers.ring,
    "KROWL_RING_SECRET": checkers.text(
        "|none|[!-~]{16,}", "at least 16 plain printable characters, or none"
    ),
    **{f"{name}_FILE": checkers.text(".*", "the path of a file") for name in IN_FILES},
    "KROWL_CLUSTER_PAGES": integer(0, "pages"),
    "KROWL_INBOX_MAX": integer(1, "messages"),
    "KROWL_OUTBOX_MAX": integer(0, "URLs"),
    "KROWL_WARC_DIR": checkers.folder,
    "KROWL_WARC_PREFIX": checkers.text(_FILE_PREFIX, "of letters, digits, '.', '_' and '-'"),
    "KROWL_WARC_MAX_SIZE": integer(1, "bytes"),
    "KROWL_WARC_MAX_AGE": _seconds,
    "KROWL_WARC_DIGEST": checkers.text("|".join(ALGORITHMS), " or ".join(ALGORITHMS)),
    "KROWL_WARC_COMPRESSION": checkers.text(
        COMPRESSIONS.pattern, "isal-0 to isal-3, or zlib-ng-1 to zlib-ng-9"
    ),
    "KROWL_WARC_SKIP_STATUS": checkers.each(checkers.is_status, "status codes"),
    "KROWL_WARC_METADATA": checkers.boolean,
    "KROWL_WARC_FAILURES": checkers.boolean,
    "KROWL_WARC_DNS": checkers.boolean,
    "KROWL_WARC_QUEUE": integer(1, "bytes"),
    "KROWL_WARC_REVISIT": checkers.boolean,
    "KROWL_WARC_REVISIT_MAX": integer(2, "payloads"),
    "KROWL_WARC_UPLOAD": _bucket,
    "KROWL_WARC_UPLOAD_ENDPOINT": _endpoint,
    "KROWL_WARC_UPLOAD_DELETE": checkers.boolean,
    "KROWL_DISK_FLOOR": integer(0, "bytes"),
    "KROWL_STATUS_INTERVAL": _seconds,
    "PROMETHEUS_ENABLED": checkers.boolean,
    "PROMETHEUS_HOST": checkers.text(r"[A-Za-z0-9._:-]+", "an address to listen at"),
    "PROMETHEUS_PORT": checkers.ports,
    "PROMETHEUS_PATH": checkers.text(r"/?[A-Za-z0-9._~/-]+", "a path such as metrics"),
    # Scrapy's, which the components here rely on.
    "TWISTED_REACTOR": checkers.text(re.escape(_ASYNCIO_REACTOR), _ASYNCIO_REACTOR),
    "USER_AGENT": checkers.user_agent,
    "ROBOTSTXT_USER_AGENT": checkers.text(_AGENT_NAME, "a product token: letters, '_' and '-'"),
    "ROBOTSTXT_OBEY": checkers.boolean,
    "CONCURRENT_REQUESTS": integer(1, "requests"),
    "DOWNLOAD_TIMEOUT": _seconds,
    "DOWNLOAD_MAXSIZE": integer(1, "bytes"),
    "DNSCACHE_SIZE": integer(1, "names"),
    "RETRY_TIMES": integer(0, "times"),
    "RETRY_HTTP_CODES": checkers.each(checkers.is_status, "status codes"),
    "REDIRECT_MAX_TIMES": integer(0, "times"),
    # 0 is no limit, as in Scrapy.
    "URLLENGTH_LIMIT": integer(0, "characters"),
    "SCHEDULER": checkers.component(defaults.SCHEDULER),
    "DUPEFILTER_CLASS": checkers.component(defaults.DUPEFILTER_CLASS),
    "DOWNLOADER": checkers.component(defaults.DOWNLOADER),
}


class ValidationAddon:
    """The Scrapy add-on that checks the settings of every crawl, the spider's own included."""

    def update_settings(self, settings: Settings) -> None:
        """:raises SettingsError: as :func:`validate` does"""
        keep_out_of_logs()
        validate(settings)


def validate(settings: BaseSettings) -> None:
    """Checks every KROWL_ setting, and those of Scrapy that the crawl's components rely on, when it
    has read the secrets that are in files.

    :raises SettingsError: names all that is wrong, one after the other, joined by "; "
    """
    read_files(settings)
    problems = [_unknown(name) for name in sorted(_krowl_names(settings) - KNOWN)]
    problems += [problem for name in CHECKERS if (problem := _problem(settings, name))]
    # What two values make together can be said only of values that are right by themselves.
    problems = problems or _contradictions(settings)
    if problems:
        raise SettingsError("; ".join(problems))


def _krowl_names(settings: BaseSettings) -> set[str]:
    return {name for name in settings if isinstance(name, str) and name.startswith("KROWL_")}


def _unknown(name: str) -> str:
    # Without the prefix, which would make every name alike.
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
        # Scrapy's getters would read it as 0.
        return f"{name} is None: it must have a value"
    reason = CHECKERS[name](settings, name)
    if reason and name in _SECRET:
        return f"{name} {reason}"
    # One line, whatever was given: repr() leaves no line break in text, this none in the rest.
    return f"{name}={_bare(' '.join(repr(value).split()))} {reason}" if reason else None


def _bare(value: str) -> str:
    """A URL without the user and password that somebody may have put there: what is wrong is told in a log."""
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
    if settings["KROWL_CONSUL"] and settings.getlist("KROWL_RING"):
        found.append("KROWL_CONSUL and KROWL_RING are both set: the members come from one of them")
    if settings["KROWL_CONSUL"] and not settings["REDIS_URL"]:
        found.append(
            "KROWL_CONSUL is set, and REDIS_URL is not: give this node's Redis, as the other nodes reach it"
        )
    return found
