"""Checks that one setting or a few have, as `krowlspider.config.kinds` describes them."""

from __future__ import annotations

import logging
import os
import re
import shlex
import time
from collections.abc import Mapping
from importlib.util import find_spec
from ipaddress import ip_network
from os import PathLike
from pathlib import Path, PureWindowsPath
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import urlsplit

from scrapy.settings import BaseSettings
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object
from w3lib.url import file_uri_to_path

from krowlspider.archive.payload import ALGORITHMS
from krowlspider.archive.uploads import Destination, is_endpoint
from krowlspider.archive.write.records import info_fault
from krowlspider.archive.write.series import COMPRESSIONS
from krowlspider.cluster.ring.ring import REDIS_URL, Member
from krowlspider.config.contact import HEADER, NO_HEADER, contact_fault
from krowlspider.config.guarantees import LOAD_ERRORS, is_derived, take_back
from krowlspider.config.kinds import Checker, boolean, each, one_of, parsed, text
from krowlspider.errors import install_with, pip_install
from krowlspider.fetch.guard import is_address
from krowlspider.policies.keys import expression
from krowlspider.urls.canonical import Ports

_HOST_PATTERN = re.compile(r"(\*\.)?[^\s*/:@\[\]]+")
_PORT_MAX = 65_535
# Schemes of feeds that are files.
_FILES = frozenset({"", "file"})
# The module that Scrapy needs for a feed, and its package, by scheme.
_FEED_PACKAGES = {"s3": ("boto3", "boto3"), "gs": ("google.cloud", "google-cloud-storage")}


def switched_on(settings: BaseSettings, name: str) -> str | None:
    if fault := boolean(settings, name):
        return fault
    return None if settings.getbool(name) else "must be True"


def component(path: str, does: str) -> Checker:
    """Return a checker for the class at ``path``, or one derived from it.

    The value is a class or its path. ``does`` says what another class would lose.
    """

    def check(settings: BaseSettings, name: str) -> str | None:
        try:
            derived = is_derived(settings.get(name), path)
        except LOAD_ERRORS as error:
            return f"cannot be loaded: {error}"
        fault = f"is neither {path} nor derived from it, which {does}"
        return None if derived else f"{fault}: {take_back(settings, name)}"

    return check


def components(settings: BaseSettings, name: str) -> str | None:
    """Check that each value is a number, the place in the order, or None: without it."""
    try:
        build_component_list(settings[name])
    except LOAD_ERRORS as error:
        return f"is wrong: {error}"
    return None


def add_ons(settings: BaseSettings, name: str) -> str | None:
    """Check as `components`, and that all classes can be loaded.

    Scrapy loads them before the crawl can report it.
    """
    if fault := components(settings, name):
        return fault
    for path in build_component_list(settings[name]):
        try:
            load_object(path)
        except LOAD_ERRORS as error:
            return f"names {path!r}, which cannot be loaded: {error}"
    return None


def names_to_addresses(settings: BaseSettings, name: str) -> str | None:
    try:
        pairs: dict[Any, Any] = settings.getdict(name)
    except (TypeError, ValueError):
        return 'is not a mapping (on the command line JSON: {"name": "address"})'
    for host, address in pairs.items():
        if not (isinstance(host, str) and _HOST_PATTERN.fullmatch(host)):
            return f'has {host!r}, which is neither "name" nor "*.suffix"'
        if not (isinstance(address, str) and is_address(address)):
            return f"has {address!r} for {host!r}, which is not an IP address"
    return None


def warc_info(settings: BaseSettings, name: str) -> str | None:
    """Check the fields of KROWL_WARC_INFO."""
    try:
        fields: dict[Any, Any] = settings.getdict(name)
    except (TypeError, ValueError):
        return 'is not a mapping (on the command line JSON: {"operator": "Example Library"})'
    for field, value in fields.items():
        if fault := info_fault(field, value):
            return f"has {field!r}, which {fault}"
    return None


def _is_path(settings: BaseSettings, name: str) -> bool:
    value = settings.get(name)
    return isinstance(value, str | PathLike) and bool(value) and str(value).isprintable()


def folder(settings: BaseSettings, name: str) -> str | None:
    return None if _is_path(settings, name) else "is not a folder's path"


def file(settings: BaseSettings, name: str) -> str | None:
    if not _is_path(settings, name):
        return "is not a file's path"
    return None if Path(settings[name]).is_file() else "is not an existing file"


def file_or_none(settings: BaseSettings, name: str) -> str | None:
    return None if settings.get(name) == "" else file(settings, name)


def hooks(settings: BaseSettings, name: str) -> str | None:
    """Check that the class of hooks can be loaded."""
    try:
        load_object(settings.get(name))
    except LOAD_ERRORS as error:
        return f"cannot be loaded: {error}"
    return None


def sign_key(settings: BaseSettings, name: str) -> str | None:
    """Check the file of a private key."""
    if fault := file(settings, name):
        return fault
    from krowlspider.fetch.signing import read_key  # noqa: PLC0415 - few crawls sign

    try:
        read_key(settings[name], time.time())
    except ValueError as error:
        return str(error)
    return None


def sign_agent(settings: BaseSettings, name: str) -> str | None:
    """Check the origin of the directory; "" for none."""
    if settings.get(name) == "":
        return None
    from krowlspider.fetch.signing import agent_origin  # noqa: PLC0415 - few crawls sign

    try:
        agent_origin(str(settings.get(name)))
    except ValueError as error:
        return str(error)
    return None


def log_file(settings: BaseSettings, name: str) -> str | None:
    if not _is_path(settings, name):
        return "is not a file's path"
    target = Path(settings[name])
    if target.is_dir():
        return "is a folder: give a file"
    if not target.parent.is_dir():
        return f"cannot be written: there is no folder {target.parent}"
    writable = os.access(target if target.exists() else target.parent, os.W_OK)
    return None if writable else "cannot be written: permission denied"


def log_level(settings: BaseSettings, name: str) -> str | None:
    value = settings.get(name)
    if isinstance(value, int) or str(value) in logging.getLevelNamesMapping():
        return None
    return "is no level of a log: give CRITICAL, ERROR, WARNING, INFO or DEBUG"


def feeds(settings: BaseSettings, name: str) -> str | None:
    """Check feeds: Scrapy crawls on without one that it cannot write. It makes the folders of
    files, as Scrapy does later."""
    formats = settings.getwithbase("FEED_EXPORTERS")
    for feed, options in settings.getdict(name).items():
        given = options.get("format") if isinstance(options, Mapping) else options
        if given not in formats:
            known = ", ".join(sorted(formats))
            return f"has {str(feed)!r} in the format {given!r}: give one of {known}"
        if fault := _storage_fault(settings, str(feed)):
            return f"has {str(feed)!r}, which {fault}"
    return None


def _storage_fault(settings: BaseSettings, feed: str) -> str | None:
    """Return why a feed cannot be stored there. What a server says is known at the end only."""
    scheme = "" if PureWindowsPath(feed).drive else urlsplit(feed).scheme
    storages = settings.getwithbase("FEED_STORAGES")
    storage = storages.get(scheme)
    if not storage:
        known = ", ".join(sorted(each for each in storages if each and storages[each]))
        return f"has the unknown scheme {scheme!r}: give a file, or a URL of {known}"
    if storage != settings["FEED_STORAGES_BASE"].get(scheme):
        return None
    module, package = _FEED_PACKAGES.get(scheme, ("os", ""))
    if not _is_there(module):
        return f"needs the package {package}: {pip_install(package)}"
    return _file_fault(file_uri_to_path(feed) if scheme else feed) if scheme in _FILES else None


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # The package that it would be in.
        return False


def _file_fault(name: str) -> str | None:
    # Scrapy replaces names such as %(time)s, in a folder too.
    fixed, _, is_template = name.partition("%(")
    target = Path(fixed + "x" if is_template else name)
    try:
        if not is_template and target.is_dir():
            return "is a folder: give a file"
        if not is_template and target.exists():
            return None if os.access(target, os.W_OK) else "cannot be written: permission denied"
        folder = target.resolve().parent
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"cannot be written: {error.strerror}"


header = text(HEADER, NO_HEADER)


def user_agent(settings: BaseSettings, name: str) -> str | None:
    """Check a header that contains the contact: the owner of a site reads it there."""
    if fault := header(settings, name):
        return fault
    holds = "{contact}" in settings[name]
    return None if holds else "must hold {contact}, which KROWL_CONTACT replaces"


def endpoint(settings: BaseSettings, name: str) -> str | None:
    value = settings.get(name)
    if isinstance(value, str) and is_endpoint(value):
        return None
    return "is not the http(s) URL of a server, without user or password"


def pyroscope(settings: BaseSettings, name: str) -> str | None:
    if settings.get(name) == "":
        return None
    if fault := endpoint(settings, name):
        return fault
    if find_spec("pyroscope") is None:
        return f"needs pyroscope-io: {install_with('pyroscope')}"
    return None


def grpc_address(settings: BaseSettings, name: str) -> str | None:
    value = settings.get(name)
    if value == "":
        return None
    if not isinstance(value, str) or host_and_port(value) is None:
        return "is not HOST:PORT: give 127.0.0.1:50051"
    if any(find_spec(module) is None for module in ("grpc", "grpc_health", "grpc_reflection")):
        return f"needs grpcio: {install_with('grpc')}"
    return None


def search_index(settings: BaseSettings, name: str) -> str | None:
    if settings.get(name) == "":
        return None
    if not _is_path(settings, name):
        return "is not a folder's path"
    return None if find_spec("tantivy") else f"needs tantivy: {install_with('search')}"


def host_and_port(value: str) -> tuple[str, int] | None:
    """Return the parts of HOST:PORT, an address of IPv6 without its brackets; None if it is not
    that."""
    found = re.fullmatch(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", value)
    if found is None or int(found[2]) > _PORT_MAX:
        return None
    return found[1].strip("[]"), int(found[2])


def contact(settings: BaseSettings, name: str) -> str | None:
    return contact_fault(settings.get(name))


def port_range(value: Any) -> range:
    """Return the ports that a number stands for, or a list or text with commas of one or two.

    Port 0 is any free port.

    :raises TypeError: the value is none of these
    :raises ValueError: the numbers are no ports, or more than two, or the first is above the last
    """
    parts = value.split(",") if isinstance(value, str) else value
    numbers = [int(part) for part in parts] if isinstance(parts, list | tuple) else [int(parts)]
    if len(numbers) not in {1, 2} or not 0 <= numbers[0] <= numbers[-1] <= _PORT_MAX:
        raise ValueError(f"{value!r} is no range of ports")
    return range(numbers[0], numbers[-1] + 1)


def is_server(part: str) -> bool:
    """Return whether text is an address or "address:port"; IPv6 with a port is in brackets."""
    if is_address(part):
        return True
    address, _, port = part.rpartition(":")
    bare = address.removeprefix("[").removesuffix("]")
    # Only IPv6 needs brackets, and always with a port: "::1:53" is an address by itself.
    if not is_address(bare) or (":" in bare) != (address == f"[{bare}]"):
        return False
    return port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX


def collector(settings: BaseSettings, name: str) -> str | None:
    """Check KROWL_TRACES: a webhook, but no command."""
    value = settings.get(name)
    is_url = value == "" or (isinstance(value, str) and value.startswith(("http://", "https://")))
    if is_url and notice_target(settings, name) is None:
        return None
    return "is not the http(s) URL of a collector, without a user: http://127.0.0.1:4318"


def notice_target(settings: BaseSettings, name: str) -> str | None:
    fault = "is neither the http(s) URL of a webhook, without a user, nor a command"
    value = settings.get(name)
    if not isinstance(value, str) or "\0" in value:
        return fault
    try:
        if value.startswith(("http://", "https://")):
            if not re.fullmatch("[!-~]+", value):
                return f"{fault}: percent-encode what is not plain ASCII"
            parts = urlsplit(value)
            return None if parts.hostname and parts.port != 0 and not parts.username else fault
        return fault if value and not shlex.split(value) else None
    except ValueError:
        return fault


# --- Those of one setting or two that are a kind with its values ----------------------------------

_SERVER_URL = r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?/?"
_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
_PLAIN = "[!-~]{16,}"

scheduler = component(
    "krowlspider.engine.scheduler.Scheduler",
    "keeps the delay of each host, robots.txt and the queue on disk",
)
dupefilter = component("krowlspider.engine.dupefilter.DupeFilter", "asks the seen set")
downloader = component(
    "krowlspider.engine.downloader.Downloader", "fetches only what the scheduler has popped"
)
reactor = text(re.escape(_REACTOR), f"is not {_REACTOR}: leave it out")
# RFC 9309, section 2.2.1.
product_token = text(r"[A-Za-z_-]+", "is not a product token: letters, '_' and '-'")
# RFC 9110, section 15.
statuses = each(re.compile(r"\s*[1-5][0-9][0-9]\s*").fullmatch, "status codes")
networks = each(ip_network, "networks such as 10.0.0.0/8")
ports = parsed(
    lambda parts: Ports(map(str, parts)),
    "is no list of ports and ranges: {}",
    BaseSettings.getlist,
)
expressions = parsed(
    lambda parts: list(map(expression, parts)),
    "is no list of regular expressions: {}",
    BaseSettings.getlist,
)
dns_servers = each(is_server, "addresses such as 1.2.3.4 or 1.2.3.4:53")
# At most as long as the longest extension that the crawl looks for.
extensions = each(re.compile(r"\s*\.?[A-Za-z0-9_-]{1,8}\s*").fullmatch, "extensions such as zip")
# It is part of keys and names in Consul and Redis.
cluster_name = text(
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", "is not 1 to 63 letters, digits, '_' and '-'"
)
node_id = parsed(
    lambda value: value == "" or Member(value),
    "is not a node id: 1 to 63 letters, digits, '.', '_' and '-', a letter or digit first",
)
consul = text(
    f"|{_SERVER_URL}|unix:///[!->@-~]+",
    "is not the http(s) URL of a server, such as http://127.0.0.1:8500",
)
consul_token = text("|" + HEADER, NO_HEADER)
redis_url = text(
    "|" + REDIS_URL.pattern,
    "is not the URL of a Redis, such as redis://host:6379/0, without a query",
)
control_token = text(f"|{_PLAIN}", "is not at least 16 plain printable characters")
file_of_secret = text(".*", "is not the path of a file")
# As the archive takes it, but without a leading hyphen, which tools would read as an option.
warc_prefix = text(r"[A-Za-z0-9_][A-Za-z0-9._-]*", "is not of letters, digits, '.', '_' and '-'")
warc_also = each({"metadata", "failures", "dns"}.__contains__, "words metadata, failures and dns")
digest = one_of(*ALGORITHMS)
compression = text(COMPRESSIONS.pattern, "is not isal-0 to isal-3, or zlib-ng-1 to zlib-ng-9")
other_crawls = each(bool, "JOBDIRs, CDXJ files and dedup indexes")
destination = parsed(lambda value: Destination.parse(str(value)))
listen_address = text(r"[A-Za-z0-9._:-]+", "is not an address to listen at")
host_names = each(
    lambda part: re.fullmatch(r"[A-Za-z0-9._-]+", part) or is_address(part),
    "names and addresses, without ports",
)
one_port_or_range = parsed(
    port_range, "is neither a port, 0 to 65535, nor the first and the last of several"
)
telnet_ports = parsed(
    # An empty list is any free port.
    lambda given: given and port_range(given),
    "is no list of the first and the last of several ports",
    BaseSettings.getlist,
)
url_path = text(r"/?[A-Za-z0-9._~/-]+", "is not a path such as metrics")
