"""The columns of a URL, as Common Crawl's index table has them. Pure.

Of a host name they are those of `HostName` of commoncrawl/cc-index-table. The registry suffix is by
the first section of the Public Suffix List, the private one by the whole list. A name with an
unknown suffix has neither suffix nor domain, and an IP address has its name only.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from krowlspider.internals.suffix_list import suffix_list

# Names in memory, about 600 bytes each.
NAMES = 16_384
_PRIVATE = "// ===BEGIN PRIVATE DOMAINS"
_RULE = re.compile(r"^[^/\s]\S*", re.MULTILINE)
_ADDRESS = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
# RFC 3986, appendix B, with any number of slashes behind http(s).
_URL = re.compile(
    r"(?:(https?):/*|([^:/?#]*):(?://)?)([^/?#]*)([^?#]*)(?:\?([^#]*))?", re.IGNORECASE
)
_PORT = re.compile(r":([0-9]{1,5})$")


class HostColumns(NamedTuple):
    """The columns of a host name, in their order in the table."""

    name: str
    tld: str | None = None
    second: str | None = None
    third: str | None = None
    fourth: str | None = None
    fifth: str | None = None
    registry_suffix: str | None = None
    registered_domain: str | None = None
    private_suffix: str | None = None
    private_domain: str | None = None
    reversed: str | None = None


class Parts(NamedTuple):
    """The columns of a URL behind those of its host."""

    protocol: str
    port: int | None
    path: str
    query: str | None


def split(url: str) -> tuple[HostColumns, Parts]:
    """Return the columns of a URL of any scheme; the port is None unless the URL names one."""
    found = _URL.match(url)
    if found is None:
        return host_of(""), Parts("", None, url, None)
    secure, scheme, authority, path, query = found.groups()
    authority = authority.rpartition("@")[2]
    port = _PORT.search(authority)
    name = authority[: port.start()] if port else authority.rstrip(":")
    parts = Parts((secure or scheme).lower(), int(port[1]) if port else None, path, query)
    return host_of(name), parts


@lru_cache(maxsize=NAMES)
def host_of(name: str) -> HostColumns:
    """Return the columns of a host name, which is in brackets if it is an IPv6 address."""
    name = name.lower()
    if name.startswith("[") or _ADDRESS.fullmatch(name):
        return HostColumns(name)
    name = _ascii(unquote(name).lower()).removesuffix(".")
    labels = name.split(".")[::-1]
    first: list[str | None] = [*labels[:5]]
    first += [None] * (5 - len(first))
    listed = ".".join(map(_as_listed, labels[::-1])) if "xn--" in name else name
    registry, private = _sections()
    domains = (*_below(name, listed, registry), *_below(name, listed, private))
    return HostColumns._make((name, *first, *domains, ".".join(labels)))


def _ascii(name: str) -> str:
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        return name


def _below(name: str, listed: str, rules: frozenset[str]) -> tuple[str | None, str | None]:
    """Return the public suffix of a name, and the domain one label below it."""
    rest = listed
    while rest:
        parent = rest.partition(".")[2]
        if f"!{rest}" in rules:
            rest = parent
            break
        if rest in rules or f"*.{parent}" in rules:
            break
        rest = parent
    if not rest:
        return None, None
    labels, count = name.split("."), rest.count(".") + 1
    domain = ".".join(labels[-count - 1 :]) if len(labels) > count else None
    return ".".join(labels[-count:]), domain


def _as_listed(label: str) -> str:
    try:
        return label[4:].encode().decode("punycode") if label.startswith("xn--") else label
    except UnicodeError:
        return label


@lru_cache(maxsize=1)
def _sections() -> tuple[frozenset[str], frozenset[str]]:
    """Return the rules of the list's first section, and those of both."""
    text = suffix_list()
    registry = frozenset(_RULE.findall(text.partition(_PRIVATE)[0]))
    return registry, frozenset(_RULE.findall(text))
