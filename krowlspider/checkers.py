"""What a setting may be: one checker for each kind of value."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_network
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from scrapy.utils.misc import load_object

from krowlspider.cluster.membership import REDIS_URL, parse_ring
from krowlspider.cluster.ring import WEIGHT_MAX, Member
from krowlspider.fetch.hosts import is_address
from krowlspider.urls.ports import Ports

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

# What is wrong with the setting of that name, to be read after the name and its value; None when
# nothing is. Values come typed from a module, or as text from the command line.
Checker: TypeAlias = Callable[["BaseSettings", str], str | None]

# Enough to tell an address from a slip of the keyboard; whether it is read, nobody can check here.
_EMAIL = re.compile(r"[^@\s()<>,;:\"\\]+@[^@\s()<>,;:\"\\.]+(\.[^@\s()<>,;:\"\\.]+)+")
_HOST_PATTERN = re.compile(r"(\*\.)?[^\s*/:@\[\]]+")
# As long as the longest that is looked for.
_EXTENSION = re.compile(r"\s*\.?[A-Za-z0-9_-]{1,8}\s*")
_STATUS = re.compile(r"\s*[1-5][0-9][0-9]\s*")
_PORT_MAX = 65_535
# Without user, password, path or query.
_SERVER_URL = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?/?")


def number(low: float, high: float, unit: str, *, above: bool = False) -> Checker:
    """A finite number of ``unit`` from ``low`` (itself excluded with ``above``) to ``high``."""
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
    """A whole number of ``unit``, at least ``low``."""

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
    try:
        settings.getbool(name)
    except (TypeError, ValueError):
        return "is neither True nor False"
    return None


def text(pattern: str, wanted: str) -> Checker:
    """Text that ``pattern`` matches in full."""
    compiled = re.compile(pattern)

    def check(settings: BaseSettings, name: str) -> str | None:
        value = settings.get(name)
        if isinstance(value, str) and compiled.fullmatch(value):
            return None
        return f"is not {wanted}"

    return check


def each(test: Callable[[str], bool], wanted: str) -> Checker:
    """A list, or text with commas, each part of which passes ``test``."""

    def check(settings: BaseSettings, name: str) -> str | None:
        try:
            parts = settings.getlist(name)
        except TypeError:
            return f"is not a list of {wanted}"
        wrong = [part for part in parts if not (isinstance(part, str | int) and test(str(part)))]
        return f"has {wrong[0]!r}, which is not one of the {wanted}" if wrong else None

    return check


def component(path: str) -> Checker:
    """The class at ``path``, or one derived from it; a path or a class."""

    def check(settings: BaseSettings, name: str) -> str | None:
        if settings.get(name) == path:
            return None
        try:
            found = load_object(settings.get(name))
        except (ImportError, NameError, TypeError, ValueError) as error:
            return f"cannot be loaded: {error}"
        # By its bases, as Scrapy's scheduler makes issubclass() ask only for methods.
        if isinstance(found, type) and load_object(path) in found.__mro__:
            return None
        return f"is neither {path} nor derived from it"

    return check


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


def folder(settings: BaseSettings, name: str) -> str | None:
    value = settings.get(name)
    if value is None or (isinstance(value, str | PathLike) and value and str(value).isprintable()):
        return None
    return "is not a folder's path"


def file(settings: BaseSettings, name: str) -> str | None:
    """The path of a file that is there; None is none."""
    value = settings.get(name)
    if value is None:
        return None
    if not (isinstance(value, str | PathLike) and value and str(value).isprintable()):
        return "is not a file's path"
    return None if Path(value).is_file() else "is not a file that is there"


def ring(settings: BaseSettings, name: str) -> str | None:
    """The members of a static ring; an empty list is none."""
    try:
        parse_ring(settings.getlist(name))
    except (TypeError, ValueError, AttributeError) as error:
        return f"is no ring: {error}"
    return None


def node_id(settings: BaseSettings, name: str) -> str | None:
    """The id of a node; empty text is none."""
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
    """A node's weight on the ring."""
    reason = integer(1, "shares")(settings, name)
    if reason is None and settings.getint(name) > WEIGHT_MAX:
        return f"is out of range: at most {WEIGHT_MAX} shares"
    return reason


def server_url(settings: BaseSettings, name: str) -> str | None:
    """An http(s) URL of a server alone; empty text is none."""
    value = settings.get(name)
    if value == "" or (isinstance(value, str) and _SERVER_URL.fullmatch(value)):
        return None
    return "is not the http(s) URL of a server, such as http://127.0.0.1:8500"


def redis_url(settings: BaseSettings, name: str) -> str | None:
    """Where a Redis is; empty text is nowhere."""
    value = settings.get(name)
    if value == "" or (isinstance(value, str) and REDIS_URL.fullmatch(value)):
        return None
    return "is not the URL of a Redis, such as redis://host:6379/0, without a query"


def token(settings: BaseSettings, name: str) -> str | None:
    """A secret that is sent in a header; empty text is none."""
    return None if settings.get(name) == "" else header(settings, name)


def ports(settings: BaseSettings, name: str) -> str | None:
    """A port, or the first and the last of several."""
    try:
        port_range(settings.get(name))
    except (TypeError, ValueError):
        return f"is neither a port, 0 to {_PORT_MAX}, nor the first and the last of several"
    return None


def link_ports(settings: BaseSettings, name: str) -> str | None:
    """A list of ports and ranges of them."""
    try:
        Ports(map(str, settings.getlist(name)))
    except (TypeError, ValueError) as error:
        return f"is no list of ports and ranges: {error}"
    return None


def header(settings: BaseSettings, name: str) -> str | None:
    """Text that may stand in a header: a line break in it would make another header."""
    value = settings.get(name)
    if isinstance(value, str) and value.strip() and value.isascii() and value.isprintable():
        return None
    return "must be plain printable ASCII: it is sent in a header"


def user_agent(settings: BaseSettings, name: str) -> str | None:
    """A header that names the contact: a site's owner reads it there."""
    if reason := header(settings, name):
        return reason
    if "{contact}" in settings[name]:
        return None
    return "must hold {contact}, in place of which KROWL_CONTACT is put"


def contact(settings: BaseSettings, name: str) -> str | None:
    if reason := header(settings, name):
        return reason
    value = settings.get(name)
    if _EMAIL.fullmatch(value) or _is_web_url(value):
        return None
    return "is neither an e-mail address nor an http(s) URL"


def port_range(value: object) -> range:
    """The ports that are meant by a number, or by a list or text with commas of one or two; 0 is any that is free.

    :raises TypeError: it is none of these
    :raises ValueError: they are no ports, or too many, or the first is above the last
    """
    parts = value.split(",") if isinstance(value, str) else value
    numbers = [int(part) for part in parts] if isinstance(parts, list | tuple) else [int(parts)]  # type: ignore[call-overload]
    if len(numbers) not in {1, 2} or not 0 <= numbers[0] <= numbers[-1] <= _PORT_MAX:
        raise ValueError(f"{value!r} is no range of ports")
    return range(numbers[0], numbers[-1] + 1)


def is_network(part: str) -> bool:
    try:
        ip_network(part)
    except ValueError:
        return False
    return True


def is_status(part: str) -> bool:
    """A status code of HTTP; RFC 9110, section 15."""
    return _STATUS.fullmatch(part) is not None


def is_extension(part: str) -> bool:
    """The last part of a file's name, with or without its dot."""
    return _EXTENSION.fullmatch(part) is not None


def is_server(part: str) -> bool:
    """An address, or "address:port"; an IPv6 address with a port stands in brackets."""
    if is_address(part):
        return True
    address, _, port = part.rpartition(":")
    bare = address.removeprefix("[").removesuffix("]")
    # Brackets are for IPv6, and needed there: "::1:53" is an address by itself.
    if not is_address(bare) or (":" in bare) != (address == f"[{bare}]"):
        return False
    return port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX


def _is_web_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and " " not in value
    except ValueError:
        return False
