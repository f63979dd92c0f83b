"""Host names as Common Crawl's graph has them. Pure.

A host of the web is its name in reverse, ``com.example``, without the port and without a leading
``www``. Addresses and single labels are no hosts. The rules are those of `get_surt_host` in
commoncrawl/cc-pyspark. A Gemini server is a host of its own, and keeps its port:
``com.example:1965``.
"""

from __future__ import annotations

import re
from functools import lru_cache

# Hosts in memory, about 300 bytes each.
_REMEMBERED = 65_536
_NAME_MAX, _LABEL_MAX = 253, 63
GEMINI_PORT = "1965"
_SCHEMES = frozenset({"http:", "https:", "gemini:", ""})
_GEMINI = "gemini:"
# A reference that leads to another host, in the forms that browsers take.
_GLOBAL = re.compile(r"[\t\n\r ]*(https?:|gemini:|)[/\\]{2}([^/\\?#]*)", re.IGNORECASE)
_ADDRESS = re.compile(r"(?:www\.)?[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?")
_PORT = re.compile(r"[0-9]{1,5}")


def host_in(reference: str, scheme: str = "https:") -> str | None:
    """Return the reversed host to which an absolute reference leads; None if it leads to none.

    ``scheme`` is that of the page, for references that begin with "//". A reference to a path is
    none.
    """
    found = _GLOBAL.match(reference)
    if found is None:
        return None
    return reversed_host(found[2], is_gemini=(found[1].lower() or scheme) == _GEMINI)


@lru_cache(maxsize=_REMEMBERED)
def reversed_host(authority: str, *, is_gemini: bool = False) -> str | None:
    """Return the vertex of an authority, such as ``user@www.example.org:80``; None without one."""
    if len(authority) > 2 * _NAME_MAX:
        return None
    name, colon, port = authority.rpartition("@")[2].strip().lower().partition(":")
    name = name.removesuffix(".")
    if not name or len(name) > _NAME_MAX or _ADDRESS.fullmatch(name):
        return None
    labels = name.split(".")
    if len(labels) < 2:
        return None
    if len(labels) > 2 and labels[0] == "www":
        del labels[0]
    valid = [_ascii(label) for label in labels]
    if not all(valid):
        return None
    host = ".".join(valid[::-1])
    if not is_gemini:
        return host
    if colon and port and not _PORT.fullmatch(port):
        return None
    return f"{host}:{port.lstrip('0') or '0' if port else GEMINI_PORT}"


def _ascii(label: str) -> str:
    """Return a label in ASCII; "" of one that no host name has."""
    if not label.isascii():
        try:
            label = label.encode("idna").decode()
        except UnicodeError:
            return ""
    return label if len(label) <= _LABEL_MAX and _LABEL.fullmatch(label) else ""


def reverse(name: str) -> str:
    """Return a host name with its labels in reverse, its port as it is. It undoes itself."""
    host, colon, port = name.partition(":")
    return ".".join(host.split(".")[::-1]) + colon + port
