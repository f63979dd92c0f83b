"""Each setting and its checker."""

from __future__ import annotations

import re
from importlib.util import find_spec
from ipaddress import ip_network
from typing import TYPE_CHECKING

from scrapy.settings import BaseSettings, default_settings

from krowlspider.archive.payloads.digests import ALGORITHMS
from krowlspider.archive.upload.destination import Destination, is_endpoint
from krowlspider.archive.write.compression import COMPRESSIONS
from krowlspider.cluster.membership import parse_ring
from krowlspider.cluster.ring.record import REDIS_URL
from krowlspider.cluster.ring.ring import WEIGHT_MAX, Member
from krowlspider.config import checks, scrapy_politeness
from krowlspider.config.checks import boolean, each, integer, number, parsed, text
from krowlspider.config.contact import HEADER, NO_HEADER
from krowlspider.config.credentials import IN_FILES
from krowlspider.errors import install_with
from krowlspider.settings import defaults
from krowlspider.urls.ports import Ports

if TYPE_CHECKING:
    from krowlspider.config.checks import Checker

KNOWN = frozenset(name for name in defaults if name.startswith("KROWL_"))
# Settings in bytes and the least of each: they may be text with a unit.
SIZES = {
    "KROWL_MEMORY_LIMIT": 0,
    "KROWL_WARC_MAX_SIZE": 1,
    "KROWL_WARC_QUEUE": 1,
    "KROWL_CRAWL_LOG": 0,
    "KROWL_DISK_FLOOR": 0,
    "DOWNLOAD_MAXSIZE": 1,
    "SCRAPER_SLOT_MAX_ACTIVE_SIZE": 1,
}
# Settings that are lists: they may be text with commas.
LISTS = frozenset(name for name in KNOWN if isinstance(defaults[name], list))

_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
_SERVER_URL = r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?/?"
_DAY = 86_400.0

_seconds = number(0, "seconds", above=True)
_some_seconds = number(0, "seconds")
# RFC 9110, section 15.
_statuses = each(re.compile(r"\s*[1-5][0-9][0-9]\s*").fullmatch, "status codes")


def _endpoint(settings: BaseSettings, name: str) -> str | None:
    value = settings.get(name)
    if isinstance(value, str) and is_endpoint(value):
        return None
    return "is not the http(s) URL of a server, without user or password"


def _pyroscope(settings: BaseSettings, name: str) -> str | None:
    if settings.get(name) == "":
        return None
    if fault := _endpoint(settings, name):
        return fault
    if find_spec("pyroscope") is None:
        return f"needs pyroscope-io: {install_with('pyroscope')}"
    return None


# Scrapy names neither the setting nor its value when it reads one of another type.
_OF_TYPE: dict[type, Checker] = {
    bool: boolean,
    int: parsed(bool, "is not a whole number", BaseSettings.getint),
    float: parsed(bool, "is not a number", BaseSettings.getfloat),
}
# Each setting and its checker.
CHECKERS: dict[str, Checker] = {
    **{name: boolean for name in KNOWN if isinstance(defaults[name], bool)},
    **{name: checks.size(least) for name, least in SIZES.items()},
    "KROWL_CONTACT": checks.contact,
    "KROWL_CONNECT_TIMEOUT": _seconds,
    "KROWL_FIRST_BYTE_TIMEOUT": _seconds,
    "KROWL_BODY_RATE_MIN": integer(0, "bytes a second"),
    "KROWL_KEEPALIVE": _some_seconds,
    "KROWL_SESSION_REQUESTS": integer(1, "requests"),
    "KROWL_ALLOW_ADDRESSES": each(ip_network, "networks such as 10.0.0.0/8"),
    "KROWL_PORTS": parsed(
        lambda parts: Ports(map(str, parts)),
        "is no list of ports and ranges: {}",
        BaseSettings.getlist,
    ),
    "KROWL_RESOLVE": checks.names_to_addresses,
    "KROWL_DNS_SERVERS": each(checks.is_server, "addresses such as 1.2.3.4 or 1.2.3.4:53"),
    "KROWL_DNS_TIMEOUT": _seconds,
    "KROWL_DELAY_FACTOR": number(0, "times the latency"),
    "KROWL_DELAY_MIN": _some_seconds,
    "KROWL_DELAY_MAX": _some_seconds,
    "KROWL_CRAWL_DELAY_MAX": _some_seconds,
    "KROWL_RETRY_AFTER_MAX": _some_seconds,
    "KROWL_DOMAIN_CONCURRENCY": integer(1, "requests"),
    "KROWL_IP_CONCURRENCY": integer(0, "requests"),
    "KROWL_IP_DELAY_MIN": number(0, "seconds", high=60),
    # RFC 9309, section 2.4: not longer than a day.
    "KROWL_ROBOTS_TTL": number(0, "seconds", high=_DAY, above=True),
    "KROWL_RETRY_DELAY": _some_seconds,
    "KROWL_THROTTLING_TIMES": integer(0, "times"),
    "KROWL_COMMIT_INTERVAL": number(0, "seconds", high=60, above=True),
    "KROWL_REQUISITES": text("none|site|any", "is not none, site or any"),
    "KROWL_REQUISITES_HOST_MAX": integer(0, "URLs"),
    "KROWL_HOST_QUEUE_MAX": integer(1, "URLs"),
    "KROWL_DOMAIN_BUDGET": integer(0, "URLs"),
    "KROWL_DOMAIN_SHARE": number(0, "of the frontier", high=1),
    "KROWL_FRONTIER_MAX": integer(1, "URLs"),
    "KROWL_SEEN_CAPACITY": integer(1, "URLs"),
    "KROWL_EXCLUDE": checks.file,
    "KROWL_PATH_DEPTH_MAX": integer(0, "segments"),
    "KROWL_REPEATED_SEGMENTS_MAX": integer(0, "times"),
    # At most as long as the longest extension that the crawl looks for.
    "KROWL_SKIP_EXTENSIONS": each(
        re.compile(r"\s*\.?[A-Za-z0-9_-]{1,8}\s*").fullmatch, "extensions such as zip"
    ),
    "KROWL_DUPLICATE_BODIES_MAX": integer(0, "pages"),
    # The cluster's name is part of keys and names in Consul and Redis.
    "KROWL_CLUSTER": text(
        r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", "is not 1 to 63 letters, digits, '_' and '-'"
    ),
    "KROWL_NODE_ID": parsed(
        lambda value: value == "" or Member(value),
        "is not a node id: 1 to 63 letters, digits, '.', '_' and '-', a letter or digit first",
    ),
    "KROWL_CONSUL": text(
        "|" + _SERVER_URL, "is not the http(s) URL of a server, such as http://127.0.0.1:8500"
    ),
    "KROWL_CONSUL_TOKEN": text("|" + HEADER, NO_HEADER),
    # Consul takes no session with a shorter TTL.
    "KROWL_CONSUL_TTL": integer(10, "seconds"),
    "KROWL_TAKEOVER_DELAY": number(0, "seconds", high=_DAY),
    "REDIS_URL": text(
        "|" + REDIS_URL.pattern,
        "is not the URL of a Redis, such as redis://host:6379/0, without a query",
    ),
    "KROWL_NODE_WEIGHT": integer(1, "shares", high=WEIGHT_MAX),
    "KROWL_DRAIN_TIMEOUT": number(0, "seconds", high=_DAY),
    "KROWL_STATIC_NODES": parsed(parse_ring, "is no ring: {}", BaseSettings.getlist),
    "KROWL_STATIC_NODES_SECRET": text(
        "|none|[!-~]{16,}", "is not at least 16 plain printable characters, or none"
    ),
    **{f"{name}_FILE": text(".*", "is not the path of a file") for name in IN_FILES},
    "KROWL_CLUSTER_PAGES": integer(0, "pages"),
    "KROWL_INBOX_MAX": integer(1, "messages"),
    "KROWL_OUTBOX_MAX": integer(0, "URLs"),
    "KROWL_WARC_DIR": checks.path("folder"),
    # As the archive takes it, but without a leading hyphen, which tools would read as an option.
    "KROWL_WARC_PREFIX": text(
        r"[A-Za-z0-9_][A-Za-z0-9._-]*", "is not of letters, digits, '.', '_' and '-'"
    ),
    "KROWL_WARC_INFO": checks.warc_info,
    "KROWL_WARC_MAX_AGE": _seconds,
    "KROWL_WARC_DIGEST": text("|".join(ALGORITHMS), f"is not {' or '.join(ALGORITHMS)}"),
    "KROWL_WARC_COMPRESSION": text(
        COMPRESSIONS.pattern, "is not isal-0 to isal-3, or zlib-ng-1 to zlib-ng-9"
    ),
    "KROWL_WARC_SKIP_STATUS": _statuses,
    "KROWL_WARC_REVISIT_MAX": integer(2, "payloads"),
    "KROWL_WARC_DEDUP": each(bool, "JOBDIRs, CDXJ files and dedup indexes"),
    "KROWL_WARC_DEDUP_MAX_AGE": _some_seconds,
    "KROWL_WARC_UPLOAD": parsed(lambda value: Destination.parse(str(value))),
    "KROWL_WARC_UPLOAD_ENDPOINT": _endpoint,
    "KROWL_STATUS_INTERVAL": _seconds,
    "KROWL_LOG_FORMAT": text("text|json", "is not text or json"),
    "KROWL_NOTIFY": checks.notice_target,
    "KROWL_TRACES": checks.collector,
    "KROWL_PYROSCOPE": _pyroscope,
    "KROWL_NOTIFY_STALLED": number(0, "minutes"),
    "PROMETHEUS_ENABLED": boolean,
    "KROWL_CONTROL_TOKEN": text("|[!-~]{16,}", "is not at least 16 plain printable characters"),
    "PROMETHEUS_HOST": text(r"[A-Za-z0-9._:-]+", "is not an address to listen at"),
    "PROMETHEUS_PORT": parsed(
        checks.port_range,
        "is neither a port, 0 to 65535, nor the first and the last of several",
    ),
    "KROWL_CONTROL_PORT": parsed(
        checks.port_range,
        "is neither a port, 0 to 65535, nor the first and the last of several",
    ),
    "KROWL_METRICS_NAMES": parsed(
        checks.host_names, "is no list of names or addresses, without ports", BaseSettings.getlist
    ),
    "PROMETHEUS_PATH": text(r"/?[A-Za-z0-9._~/-]+", "is not a path such as metrics"),
    # Scrapy's settings that the crawl's components rely on, or whose errors it does not explain.
    "LOG_FILE": checks.log_file,
    "LOG_LEVEL": checks.log_level,
    "FEEDS": checks.feeds,
    "TELNETCONSOLE_PORT": parsed(
        # An empty list is any free port.
        lambda ports: ports and checks.port_range(ports),
        "is no list of the first and the last of several ports",
        BaseSettings.getlist,
    ),
    "TWISTED_REACTOR": text(re.escape(_REACTOR), f"is not {_REACTOR}"),
    "TWISTED_REACTOR_ENABLED": checks.switched_on,
    "USER_AGENT": checks.user_agent,
    # A product token (RFC 9309, section 2.2.1).
    "ROBOTSTXT_USER_AGENT": text(r"[A-Za-z_-]+", "is not a product token: letters, '_' and '-'"),
    "ROBOTSTXT_OBEY": boolean,
    "CONCURRENT_REQUESTS": integer(1, "requests"),
    "CONCURRENT_ITEMS": integer(1, "items"),
    "DOWNLOAD_DELAY": number(0, "seconds", high=scrapy_politeness.DELAY_MAX),
    "DOWNLOAD_DELAY_JITTER": number(0, "of the delay"),
    "RANDOMIZE_DOWNLOAD_DELAY": boolean,
    "ADDONS": checks.add_ons,
    "DOWNLOADER_MIDDLEWARES": checks.components,
    "EXTENSIONS": checks.components,
    "ITEM_PIPELINES": checks.components,
    "SPIDER_MIDDLEWARES": checks.components,
    "DOWNLOAD_SLOTS": scrapy_politeness.slots,
    "CONCURRENT_REQUESTS_PER_DOMAIN": integer(1, "requests"),
    "CONCURRENT_REQUESTS_PER_IP": scrapy_politeness.requests_per_ip,
    "AUTOTHROTTLE_ENABLED": boolean,
    "AUTOTHROTTLE_DEBUG": boolean,
    "AUTOTHROTTLE_TARGET_CONCURRENCY": number(0, "requests", above=True),
    "AUTOTHROTTLE_START_DELAY": _some_seconds,
    "AUTOTHROTTLE_MAX_DELAY": _some_seconds,
    "DOWNLOAD_TIMEOUT": _seconds,
    "DNSCACHE_SIZE": integer(1, "names"),
    "RETRY_TIMES": integer(0, "times"),
    "RETRY_HTTP_CODES": _statuses,
    "REDIRECT_MAX_TIMES": integer(0, "times"),
    "DEPTH_LIMIT": integer(0, "links"),
    # 0 is no limit, as in Scrapy.
    "URLLENGTH_LIMIT": integer(0, "characters"),
    "SCHEDULER": checks.component(
        defaults["SCHEDULER"], "keeps the delay of each host, robots.txt and the queue on disk"
    ),
    "DUPEFILTER_CLASS": checks.component(defaults["DUPEFILTER_CLASS"], "asks the seen set"),
    "DOWNLOADER": checks.component(
        defaults["DOWNLOADER"], "fetches only what the scheduler has popped"
    ),
}
# Scrapy's settings that need no more than the type of their default. None is valid.
SCRAPYS: dict[str, Checker] = {
    name: _OF_TYPE[type(value)]
    for name, value in vars(default_settings).items()
    if name.isupper() and type(value) in _OF_TYPE and name not in CHECKERS
}
SCRAPYS |= {"DNS_TIMEOUT": _OF_TYPE[float], "TELNETCONSOLE_ENABLED": boolean}
CHECKERS |= SCRAPYS
