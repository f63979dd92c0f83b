"""The host, authority, domain and port of a URL.

The functions for URLs run for each link, so they slice the text of a *normalised* URL and parse
nothing. data: URLs (RFC 2397) hold their content, so nothing is fetched for them. The frontier
queues by host, so they are queued under http URLs of a host that cannot exist.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha1
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from krowlspider.internals.suffix_list import suffix_list

if TYPE_CHECKING:
    from collections.abc import Iterable

# Domains kept in memory, about 250 bytes each: most links lead to hosts that were met lately.
DOMAIN_CACHE = 65_536

_SCHEMES = ("https:", "http:")
# Reading the list is slow, so the list is read at import and not on the event loop.
RULES = frozenset(re.findall(r"^[^/\s]\S*", suffix_list(), re.MULTILINE))
# "kobe.jp" of the rule "*.kobe.jp".
_WILD = frozenset(rule[2:] for rule in RULES if rule[0] == "*")


def host_of(url: str) -> str:
    """Return the lower-case host of a normalised URL: its hostname, with ``:port`` if it has one.

    The default port of the scheme is left out, and IPv6 is in brackets. The http and the https site
    of a name are one host.

    :raises ValueError: ``url`` is not an absolute http(s) URL with a path
    """
    parts = url.split("/", 3)
    if len(parts) != 4 or parts[0] not in _SCHEMES or parts[1] or not parts[2]:
        raise ValueError(f"not a normalised http(s) URL: {url[:200]!r}")
    host = parts[2]
    # A name with its root dot and the same name without it are one host.
    if host[-1] == ".":
        return host[:-1] or host
    return host.replace(".:", ":") if ".:" in host and host[:2] != ".:" else host


def authority_of(url: str) -> str:
    """Return ``scheme://host[:port]`` of a normalised URL, to which one robots.txt applies.

    Host and errors are those of `host_of`.
    """
    return f"{url.partition(':')[0]}://{host_of(url)}"


def position_of(domain: str) -> int:
    """Return the position of a domain in the ring of a cluster, below 2**64."""
    return xxh3_64_intdigest(domain.encode())


@lru_cache(maxsize=DOMAIN_CACHE)
def domain_of(host: str) -> str:
    """Return the registrable domain of a host, without port, by the whole Public Suffix List.

    The domain of a name under an unknown suffix is its last two labels, by the list's default rule.
    An IP address, a public suffix and a single label are their own domain.
    """
    if host.startswith("["):
        return host[: host.index("]") + 1]
    given = host.partition(":")[0]
    name = given.rstrip(".")
    labels = name.split(".")
    suffix = _suffix_of(".".join(map(_as_listed, labels)) if "xn--" in name else name)
    if not suffix:
        return given if labels[-1].isdigit() else ".".join(labels[-2:]) or given
    own = labels[-suffix.count(".") - 2 :]
    return ".".join(own) if own[0] else name


def _suffix_of(name: str) -> str:
    """Return the public suffix of a name by the rules of the list; "" if none of them applies."""
    rest = name
    while rest:
        parent = rest.partition(".")[2]
        if parent in _WILD:
            return parent if f"!{rest}" in RULES else rest
        if rest in RULES:
            return rest
        rest = parent
    return ""


def _as_listed(label: str) -> str:
    """Return a label as the list spells it: an internationalised one in Unicode."""
    if not label.startswith("xn--"):
        return label
    try:
        return label[4:].encode().decode("punycode") or label
    except UnicodeError:
        return label


# RFC 6761, section 6.4: no name in this domain resolves.
DATA_HOST = "data.invalid"


def is_data(url: str) -> bool:
    """Return whether a URL is a data: URL."""
    return url.startswith("data:")


def queued_as(url: str) -> str:
    """Return the normalised http URL under which a data: URL is queued."""
    digest = sha1(url.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    return f"http://{DATA_HOST}/{digest.hexdigest()}"


# Ports of other protocols, whose servers must receive no HTTP request: Fetch standard, section 2.9,
# "bad ports".
BAD_PORTS = frozenset(
    {
        *(0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95),
        *(101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179),
        *(389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587),
        *(601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061),
        *(6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080),
    }
)
_PORT_MAX = 65_535
# Hosts with a port for which the result is cached, about 150 bytes each.
_REMEMBERED = 16_384


def port_of(host: str) -> int | None:
    """Return the port of a host from `host_of`; None for the default of its scheme."""
    _, colon, port = host.rpartition(":")
    # The last colon of "[::1]" does not precede a port.
    return int(port) if colon and port.isdigit() else None


def name_of(host: str) -> str:
    return host if port_of(host) is None else host.rpartition(":")[0]


def orders_for(host: str) -> tuple[str, ...]:
    """Return the texts by which people name a host from `host_of` in orders, the narrowest first:
    with its port, then the name, which stands for all ports.

    A host without a port is that of both default ports.
    """
    name = name_of(host)
    return (host, name) if name != host else (f"{host}:80", f"{host}:443", host)


@lru_cache(maxsize=_REMEMBERED)
def has_bad_port(host: str) -> bool:
    return port_of(host) in BAD_PORTS


class Ports:
    """The ports that links may lead to, given as ``8080`` or ``1024-65535``.

    A single port is allowed on every host name. Of the ports in ranges, each host name may use one.

    :raises ValueError: a text is neither a port nor a range, or a single port is bad
    """

    def __init__(self, given: Iterable[str]):
        self._listed: set[int] = set()
        self._ranges: list[range] = []
        for text in given:
            first, dash, last = text.strip().partition("-")
            found = range(_number(first, text), _number(last if dash else first, text) + 1)
            if not found:
                raise ValueError(f"{text!r} is no range of ports: its first is above its last")
            if dash:
                self._ranges.append(found)
            elif found.start in BAD_PORTS:
                raise ValueError(f"{text!r} is a port of another protocol, which is never asked")
            else:
                self._listed.add(found.start)

    def lists(self, port: int) -> bool:
        """Return whether a port is given as a single port."""
        return port in self._listed

    def spans(self, port: int) -> bool:
        """Return whether a port is in one of the ranges."""
        return any(port in ports for ports in self._ranges)


def _number(digits: str, text: str) -> int:
    if digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) <= _PORT_MAX:
        return int(digits)
    raise ValueError(f"{text!r} is neither a port nor a range such as 1024-65535")
