"""Build the bytes of a request, and find the origin it goes to."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # all but the tab: RFC 9110, section 5.5
_NOT_IN_URL = re.compile(r"[^\x21-\x7e]")
_PORTS = {"http": 80, "https": 443}
# They decide where the request goes and where it ends, so only the URL and the body set them.
_DERIVED = frozenset({b"host", b"content-length", b"transfer-encoding"})
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
# Most requests have the same headers, so their checked and joined lines are cached.
_HEADERS_KEPT = 64


class Proxy(NamedTuple):
    """A proxy by its parts. ``authorization`` is the value of Proxy-Authorization, or empty."""

    scheme: str
    host: str
    port: int
    authorization: bytes = b""

    @property
    def name(self) -> str:
        """Return its URL without credentials, for logs."""
        return f"{self.scheme}://{bracketed(self.host)}:{self.port}"


class Origin(NamedTuple):
    """Requests to the same origin may share a connection. An IPv6 host has no brackets.

    Through a proxy, only requests with the same origin and proxy share one.
    """

    scheme: str
    host: str
    port: int
    proxy: Proxy | None = None


class Target(NamedTuple):
    """The parts of a URL in a request: ``authority`` is the Host, ``path`` includes the query."""

    origin: Origin
    authority: bytes
    path: bytes


def split_target(url: str) -> Target:
    """Split a WHATWG-normalised http or https URL. Raises ValueError for anything else."""
    scheme, separator, rest = url.partition("://")
    if scheme not in _PORTS or not separator or _NOT_IN_URL.search(url):
        raise ValueError(f"not a normalised http(s) URL: {url!r}")
    authority, slash, path = rest.partition("/")
    if not slash and ("?" in authority or "#" in authority):
        raise ValueError(f"not a normalised http(s) URL: {url!r}")
    authority = authority.rpartition("@")[2]
    host, port = _host_and_port(authority, scheme)
    if not host:
        raise ValueError(f"a URL without a host: {url!r}")
    if host[-1] == "." and host != ".":
        # As in `host_of`: a name with its root dot is the same host, and has the same robots.txt.
        host, authority = host[:-1], authority.replace(".:", ":").removesuffix(".")
    path = "/" + path.partition("#")[0]
    return Target(Origin(scheme, host, port), authority.encode(), path.encode())


def _host_and_port(authority: str, scheme: str) -> tuple[str, int]:
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, port = authority, ""
    return host.removeprefix("[").removesuffix("]"), int(port) if port else _PORTS[scheme]


def bracketed(host: str) -> str:
    """Return a host as it stands in a URL: an IPv6 address has brackets."""
    return f"[{host}]" if ":" in host else host


def build_request(
    target: Target, method: str, headers: Sequence[tuple[bytes, bytes]], body: bytes
) -> bytes:
    """Return the request: request line, Host, ``headers`` in order, Content-Length, body.

    Host, Content-Length and Transfer-Encoding are left out of ``headers``: they derive from the URL
    and the body.

    :raises ValueError: the method is not a token, or a header would not stay on its own line
    """
    verb = method.encode("ascii")
    if not _TOKEN.fullmatch(verb):
        raise ValueError(f"not a method: {method!r}")
    head = b"%b %b HTTP/1.1\r\nHost: %b\r\n%b" % (
        *(verb, target.path, target.authority),
        _header_lines(tuple(headers)),
    )
    if body or method in _WITH_BODY:
        head += b"Content-Length: %d\r\n" % len(body)
    return b"%b\r\n%b" % (head, body)


@lru_cache(maxsize=_HEADERS_KEPT)
def _header_lines(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    lines = []
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"not a header name: {name!r}")
        if _CONTROL.search(value):
            raise ValueError(f"control characters in header {name!r}: {value!r}")
        if name.lower() not in _DERIVED:
            lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)
