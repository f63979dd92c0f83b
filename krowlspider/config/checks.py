"""Checks of setting values: one checker for each kind of value."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_network
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from krowlspider.cluster.membership import parse_ring
from krowlspider.cluster.ring.record import REDIS_URL
from krowlspider.cluster.ring.ring import WEIGHT_MAX, Member
from krowlspider.config.guarantees import is_derived
from krowlspider.fetch.dns.hosts_file import is_address
from krowlspider.urls.ports import Ports

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

# Returns the fault of the named setting, to be read after its name and value; None if it is valid.
# Values are typed, or text from the command line.
Checker: TypeAlias = Callable[["BaseSettings", str], str | None]

# Enough to find typing errors; whether anybody reads the address cannot be checked here.
_EMAIL = re.compile(r"[^@\s()<>,;:\"\\]+@[^@\s()<>,;:\"\\.]+(\.[^@\s()<>,;:\"\\.]+)+")
_HOST_PATTERN = re.compile(r"(\*\.)?[^\s*/:@\[\]]+")
# At most as long as the longest extension that the crawl looks for.
_EXTENSION = re.compile(r"\s*\.?[A-Za-z0-9_-]{1,8}\s*")
_STATUS = re.compile(r"\s*[1-5][0-9][0-9]\s*")
_PORT_MAX = 65_535
# Without user, password, path or query.
_SERVER_URL = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?/?")


def number(low: float, high: float, unit: str, *, above: bool = False) -> Checker:
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


def integer(low: int, unit: str) -> Checker:
    """Return a checker for a whole number of ``unit``, at least ``low``."""

    def check(settings: BaseSettings, name: str) -> str | None:
        try:
            value = settings.getint(name)
            whole = value == settings.getfloat(name)
        except (TypeError, ValueError, OverflowError):
            whole = False
        if not whole:
            return f"is not a whole number of {unit}"
        return None if value >= low else f"is out of range: {low} or more {unit}"

    return check


def boolean(settings: BaseSettings, name: str) -> str | None:
    """Check a boolean."""
    try:
        settings.getbool(name)
    except (TypeError, ValueError):
        return "is neither True nor False"
    return None


def text(pattern: str, wanted: str) -> Checker:
    """Return a checker for text that ``pattern`` matches in full."""
    compiled = re.compile(pattern)

    def check(settings: BaseSettings, name: str) -> str | None:
        value = settings.get(name)
        if isinstance(value, str) and compiled.fullmatch(value):
            return None
        return f"is not {wanted}"

    return check


def each(test: Callable[[str], bool], wanted: str) -> Checker:
    """Return a checker for a list, or text with commas, of which each part passes ``test``."""

    def check(settings: BaseSettings, name: str) -> str | None:
        try:
            parts = settings.getlist(name)
        except TypeError:
            return f"is not a list of {wanted}"
        wrong = [part for part in parts if not (isinstance(part, str | int) and test(str(part)))]
        return f"has {wrong[0]!r}, which is not one of the {wanted}" if wrong else None

    return check


def component(path: str, does: str) -> Checker:
    """Return a checker for the class at ``path``, or one derived from it.

    The value is a class or its path. ``does`` completes the message: it describes what another
    class would lose.
    """

    def check(settings: BaseSettings, name: str) -> str | None:
        try:
            if is_derived(settings.get(name), path):
                return None
        except (ImportError, NameError, TypeError, ValueError) as error:
            return f"cannot be loaded: {error}"
        return (
            f"is neither {path} nor derived from it, which {does}: remove {name} from your settings"
        )

    return check


def names_to_addresses(settings: BaseSettings, name: str) -> str | None:
    """Check a mapping of names, or ``*.suffix``, to IP addresses."""
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


def folder(settings: BaseSettings, name: str) -> str | None:
    """Check the path of a folder; None is valid."""
    value = settings.get(name)
    if value is None or (isinstance(value, str | PathLike) and value and str(value).isprintable()):
        return None
    return "is not a folder's path"


def file(settings: BaseSettings, name: str) -> str | None:
    """Check the path of an existing file; None is valid."""
    value = settings.get(name)
    if value is None:
        return None
    if not (isinstance(value, str | PathLike) and value and str(value).isprintable()):
        return "is not a file's path"
    return None if Path(value).is_file() else "is not a file that is there"


def ring(settings: BaseSettings, name: str) -> str | None:
    """Check the members of a static ring; an empty list is valid."""
    try:
        parse_ring(settings.getlist(name))
    except (TypeError, ValueError, AttributeError) as error:
        return f"is no ring: {error}"
    return None


def node_id(settings: BaseSettings, name: str) -> str | None:
    """Check the id of a node; empty text is valid."""
    if settings.get(name) == "":
        return None
    try:
        Member(settings.get(name))
    except ValueError:
        return (
            "is not a node id: 1 to 63 letters, digits, '.', '_' and '-', a letter or digit first"
        )
    return None


def weight(settings: BaseSettings, name: str) -> str | None:
    """Check a node's weight on the ring."""
    reason = integer(1, "shares")(settings, name)
    if reason is None and settings.getint(name) > WEIGHT_MAX:
        return f"is out of range: at most {WEIGHT_MAX} shares"
    return reason


def server_url(settings: BaseSettings, name: str) -> str | None:
    """Check the http(s) URL of a server, without path; empty text is valid."""
    value = settings.get(name)
    if value == "" or (isinstance(value, str) and _SERVER_URL.fullmatch(value)):
        return None
    return "is not the http(s) URL of a server, such as http://127.0.0.1:8500"


def redis_url(settings: BaseSettings, name: str) -> str | None:
    """Check the URL of a Redis; empty text is valid and means none."""
    value = settings.get(name)
    if value == "" or (isinstance(value, str) and REDIS_URL.fullmatch(value)):
        return None
    return "is not the URL of a Redis, such as redis://host:6379/0, without a query"


def token(settings: BaseSettings, name: str) -> str | None:
    """Check a secret that is sent in a header; empty text is valid."""
    return None if settings.get(name) == "" else header(settings, name)


def ports(settings: BaseSettings, name: str) -> str | None:
    """Check a port, or the first and the last of a range of ports."""
    try:
        port_range(settings.get(name))
    except (TypeError, ValueError):
        return f"is neither a port, 0 to {_PORT_MAX}, nor the first and the last of several"
    return None


def link_ports(settings: BaseSettings, name: str) -> str | None:
    """Check a list of ports and port ranges."""
    try:
        Ports(map(str, settings.getlist(name)))
    except (TypeError, ValueError) as error:
        return f"is no list of ports and ranges: {error}"
    return None


def header(settings: BaseSettings, name: str) -> str | None:
    """Check the value of a header: a line break in it would start another header."""
    value = settings.get(name)
    if isinstance(value, str) and value.strip() and value.isascii() and value.isprintable():
        return None
    return "must be plain printable ASCII: it is sent in a header"


def user_agent(settings: BaseSettings, name: str) -> str | None:
    """Check a header that contains the contact: the owner of a site reads it there."""
    if reason := header(settings, name):
        return reason
    if "{contact}" in settings[name]:
        return None
    return "must hold {contact}, in place of which KROWL_CONTACT is put"


def contact(settings: BaseSettings, name: str) -> str | None:
    """Check an e-mail address or an http(s) URL."""
    if reason := header(settings, name):
        return reason
    value = settings.get(name)
    if _EMAIL.fullmatch(value) or _is_web_url(value):
        return None
    return "is neither an e-mail address nor an http(s) URL"


def port_range(value: object) -> range:
    """Return the ports that a number stands for, or a list or text with commas of one or two.

    Port 0 is any free port.

    :raises TypeError: the value is none of these
    :raises ValueError: the numbers are no ports, or more than two, or the first is above the last
    """
    parts = value.split(",") if isinstance(value, str) else value
    numbers = [int(part) for part in parts] if isinstance(parts, list | tuple) else [int(parts)]  # type: ignore[call-overload]
    if len(numbers) not in {1, 2} or not 0 <= numbers[0] <= numbers[-1] <= _PORT_MAX:
        raise ValueError(f"{value!r} is no range of ports")
    return range(numbers[0], numbers[-1] + 1)


def is_network(part: str) -> bool:
    """Return whether text is an IP network."""
    try:
        ip_network(part)
    except ValueError:
        return False
    return True


def is_status(part: str) -> bool:
    """Return whether text is an HTTP status code (RFC 9110, section 15)."""
    return _STATUS.fullmatch(part) is not None


def is_extension(part: str) -> bool:
    """Return whether text is a file name's extension, with or without its dot."""
    return _EXTENSION.fullmatch(part) is not None


def is_server(part: str) -> bool:
    """Return whether text is an address or "address:port".

    An IPv6 address with a port is in brackets.
    """
    if is_address(part):
        return True
    address, _, port = part.rpartition(":")
    bare = address.removeprefix("[").removesuffix("]")
    # Only IPv6 needs brackets, and always with a port: "::1:53" is an address by itself.
    if not is_address(bare) or (":" in bare) != (address == f"[{bare}]"):
        return False
    return port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX


def _is_web_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and " " not in value
    except ValueError:
        return False
