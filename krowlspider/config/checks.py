"""Checks of setting values: one checker for each kind of value.

A checker returns the fault of the named setting, to be read after its name and value, or None.
Values are typed, or text from the command line. None was refused before.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from math import inf, isfinite
from os import PathLike
from pathlib import Path, PureWindowsPath
from tempfile import TemporaryFile
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from scrapy.settings import BaseSettings
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object
from w3lib.url import file_uri_to_path

from krowlspider.archive.write.records import info_fault
from krowlspider.config.contact import HEADER, NO_HEADER, contact_fault
from krowlspider.config.guarantees import LOAD_ERRORS, is_derived
from krowlspider.errors import pip_install
from krowlspider.fetch.dns.hosts_file import is_address

Checker: TypeAlias = Callable[[BaseSettings, str], str | None]

_HOST_PATTERN = re.compile(r"(\*\.)?[^\s*/:@\[\]]+")
_PORT_MAX = 65_535
# Schemes of feeds that are files.
_FILES = frozenset({"", "file"})
# The module that Scrapy needs for a feed, and its package, by scheme.
_FEED_PACKAGES = {"s3": ("boto3", "boto3"), "gs": ("google", "google-cloud-storage")}


def number(low: float, unit: str, *, high: float = inf, above: bool = False) -> Checker:
    """Return a checker for a finite number of ``unit`` from ``low`` to ``high``.

    With ``above``, ``low`` itself is excluded.
    """
    span = f"more than {low:g}" if above else f"{low:g} or more"
    span += f", at most {high:g} {unit}" if isfinite(high) else f" {unit}"

    def check(settings: BaseSettings, name: str) -> str | None:
        try:
            value = settings.getfloat(name)
        except (TypeError, ValueError, OverflowError):
            return f"is not a number of {unit}"
        if isfinite(value) and low <= value <= high and not (above and value == low):
            return None
        return f"is out of range: {span}"

    return check


def integer(low: int, unit: str, *, high: float = inf) -> Checker:
    """Return a checker for a whole number of ``unit`` from ``low`` to ``high``."""
    in_range = number(low, unit, high=high)

    def check(settings: BaseSettings, name: str) -> str | None:
        try:
            whole = settings.getint(name) == settings.getfloat(name)
        except (TypeError, ValueError, OverflowError):
            whole = False
        return in_range(settings, name) if whole else f"is not a whole number of {unit}"

    return check


def size(low: int) -> Checker:
    """Return a checker for a number of bytes whose unit, if any, has been read."""
    whole = integer(low, "bytes")

    def check(settings: BaseSettings, name: str) -> str | None:
        fault = whole(settings, name)
        return f"{fault}, such as 2000000000, 2GB or 512MiB" if fault else None

    return check


def boolean(settings: BaseSettings, name: str) -> str | None:
    try:
        settings.getbool(name)
    except (TypeError, ValueError):
        return "is neither True nor False"
    return None


def switched_on(settings: BaseSettings, name: str) -> str | None:
    if fault := boolean(settings, name):
        return fault
    return None if settings.getbool(name) else "must be True"


def text(pattern: str, fault: str) -> Checker:
    """Return a checker for text that ``pattern`` matches in full."""
    compiled = re.compile(pattern)

    def check(settings: BaseSettings, name: str) -> str | None:
        value = settings.get(name)
        return None if isinstance(value, str) and compiled.fullmatch(value) else fault

    return check


def parsed(
    parse: Callable[[Any], object],
    fault: str = "{}",
    get: Callable[[BaseSettings, str], Any] = BaseSettings.get,
) -> Checker:
    """Return a checker for a value that ``parse`` takes without an error.

    ``{}`` in ``fault`` stands for the message of the error. ``get`` is the getter of settings.
    """

    def check(settings: BaseSettings, name: str) -> str | None:
        try:
            parse(get(settings, name))
        except (TypeError, ValueError, AttributeError) as error:
            return fault.format(error)
        return None

    return check


def each(test: Callable[[str], object], wanted: str) -> Checker:
    """Return a checker for a list, or text with commas, of which each part passes ``test``.

    A part fails if ``test`` returns false or raises ValueError.
    """

    def check(settings: BaseSettings, name: str) -> str | None:
        try:
            parts = settings.getlist(name)
        except TypeError:
            return f"is not a list of {wanted}"
        for part in parts:
            if not (isinstance(part, str | int) and _passes(test, str(part))):
                return f"has {part!r}, which is not one of the {wanted}"
        return None

    return check


def _passes(test: Callable[[str], object], part: str) -> bool:
    try:
        return bool(test(part))
    except ValueError:
        return False


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
        return None if derived else f"{fault}: remove {name} from your settings"

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


def path(kind: str) -> Checker:
    """Return a checker for the path of a ``kind``, a file or a folder."""

    def check(settings: BaseSettings, name: str) -> str | None:
        value = settings.get(name)
        is_path = isinstance(value, str | PathLike) and value and str(value).isprintable()
        return None if is_path else f"is not a {kind}'s path"

    return check


def file(settings: BaseSettings, name: str) -> str | None:
    if fault := path("file")(settings, name):
        return fault
    return None if Path(settings[name]).is_file() else "is not an existing file"


def log_file(settings: BaseSettings, name: str) -> str | None:
    if fault := path("file")(settings, name):
        return fault
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
    if find_spec(module) is None:
        return f"needs the package {package}: {pip_install(package)}"
    return _file_fault(file_uri_to_path(feed) if scheme else feed) if scheme in _FILES else None


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


def host_names(parts: list[str]) -> None:
    """:raises ValueError: one is neither a name nor an address"""
    for part in parts:
        if not (re.fullmatch(r"[A-Za-z0-9._-]+", part) or is_address(part)):
            raise ValueError(f"{part!r} is neither a name nor an address")


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
