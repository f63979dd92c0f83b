"""Build the bytes of a request, and parse the head of a response (RFC 9112)."""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from itertools import dropwhile
from typing import TYPE_CHECKING, NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from msgspec import Struct

from krowlspider.fetch.errors import Headers, ProtocolBroken

if TYPE_CHECKING:
    from collections.abc import Sequence

# Real heads take a few KiB. The cap bounds the memory that a hostile head can use.
HEAD_CAP = 64 * 1024
HEAD_END = re.compile(rb"\n\r?\n")
# What may come before a status line, as after a body that is longer than its length.
BLANKS = re.compile(rb"[\r\n \t]{0,16}")
# Up to an exabyte. Python refuses to convert numbers of some thousand digits.
_LENGTH_DIGITS = 18
_NO_BODY = frozenset({204, 304})
_FOLD = re.compile(rb"\r?\n[ \t]+")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
# Any case, and no minor version or none at all, as in browsers.
_STATUS_LINE = re.compile(
    rb"HTTP(?:/([0-9])(?:\.([0-9]))?)?[ \t]++([0-9]{3})(?![0-9])[ \t]*+(.*)", re.IGNORECASE
)


class Framing(Enum):
    """What ends the body: RFC 9112, section 6.3."""

    NONE = auto()
    LENGTH = auto()
    CHUNKED = auto()
    CLOSE = auto()


class Head(Struct, eq=False):
    """A parsed head. ``length`` is that of the body in bytes if ``framing`` is LENGTH, else 0."""

    status: int
    version: str
    headers: Headers
    framing: Framing
    length: int
    keep_alive: bool


class _Sink:
    """Collects the headers; httptools sets the name of the callback."""

    def __init__(self) -> None:
        self.headers: Headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value.strip()))


def parse_head(data: bytes, method: str) -> Head:
    """Parse a whole head, blank line included, of a response to ``method``.

    :raises ProtocolBroken: the head is invalid or ambiguous
    """
    # llhttp refuses heads that browsers accept: a stray line, ``Name : value``, a repeated
    # Content-Length. A refused head is mended once, and its connection is not used again, nor one
    # with blanks before the status line.
    if data.startswith(b"HTTP/"):
        try:
            return _parse(data, method, keep_alive=True)
        except HttpParserError:
            pass
    try:
        return _parse(mend(data), method, keep_alive=False)
    except HttpParserError as e:
        raise ProtocolBroken(f"not an HTTP/1 response: {e}") from e


def _parse(data: bytes, method: str, *, keep_alive: bool) -> Head:
    sink = _Sink()
    parser = HttpResponseParser(sink)
    # None of these changes where a body ends: ``_framing`` decides that.
    parser.set_dangerous_leniencies(
        lenient_headers=True,
        lenient_chunked_length=True,
        lenient_transfer_encoding=True,
        lenient_version=True,
        lenient_optional_lf_after_cr=True,
        lenient_optional_cr_before_lf=True,
    )
    try:
        parser.feed_data(data)
    except HttpParserUpgrade as e:
        raise ProtocolBroken("the server switched to a protocol that was not asked for") from e
    # llhttp accepts a blank before the colon of the names that it knows, and leaves it in the name.
    for name, _ in sink.headers:
        if name.endswith(b" "):
            raise HttpParserError("a blank before a colon")
    status = parser.get_status_code()
    # Below are the statuses of another protocol, with two digits.
    if status < 100:
        raise HttpParserError("no status line")
    version = parser.get_http_version()
    framing, length, clear = _framing(status, sink.headers, method)
    return Head(
        status=status,
        version="1.0" if version == "1.0" else "1.1",
        headers=sink.headers,
        framing=framing,
        length=length,
        keep_alive=keep_alive and clear and version == "1.1",
    )


def _framing(status: int, headers: Headers, method: str) -> tuple[Framing, int, bool]:
    """Return how the body ends, its length in bytes, and whether the connection is reusable.

    Raises ProtocolBroken.
    """
    lengths: list[bytes] = []
    codings: list[bytes] = []
    clear = True
    for name, value in headers:
        lowered = name.lower()
        if lowered == b"content-length":
            lengths.append(value)
        elif lowered == b"transfer-encoding":
            codings += _tokens(value)
        elif lowered == b"connection" and b"close" in _tokens(value):
            clear = False
    if method == "HEAD" or status in _NO_BODY or 100 <= status < 200:
        return Framing.NONE, 0, clear
    if codings:
        clear = clear and codings == [b"chunked"]
        codings = [*dropwhile(b"identity".__eq__, codings)]
    if codings:
        # No server applies it twice: two proxies have each named the same one.
        if set(codings) != {b"chunked"}:
            raise ProtocolBroken(f"transfer coding {b', '.join(codings)!r} was not asked for")
        # Both headers together suggest request smuggling: Transfer-Encoding wins, and the
        # connection ends with the response (RFC 9112, section 6.3, rule 3).
        return Framing.CHUNKED, 0, clear and not lengths
    if lengths:
        if len(lengths[0]) > _LENGTH_DIGITS:
            raise ProtocolBroken(f"a Content-Length of {len(lengths[0])} digits")
        length = int(lengths[0])
        return Framing.LENGTH if length else Framing.NONE, length, clear
    return Framing.CLOSE, 0, False


def _tokens(value: bytes) -> list[bytes]:
    return [token for part in value.lower().split(b",") if (token := part.strip())]


def mend(data: bytes) -> bytes:
    """Return the head as a browser reads it.

    Blanks before it, folds and stray lines are removed, the status line is spelt as the standard
    does, names are trimmed, and equal Content-Length values merged. Different ones are all kept, so
    that the parser still refuses them.
    """
    data = data[BLANKS.match(data).end() :]  # type: ignore[union-attr] # it may be empty
    status_line, *lines = _FOLD.sub(b" ", data.replace(b"\0", b" ")).splitlines() or [b""]
    if found := _STATUS_LINE.fullmatch(status_line):
        major, minor, status, reason = found.groups()
        status_line = b"HTTP/%b.%b %b %b" % (major or b"1", minor or b"0", status, reason)
    mended = [status_line]
    lengths: list[bytes] = []
    for line in lines:
        name, colon, value = line.partition(b":")
        name = name.strip()
        if not colon or not _NAME.fullmatch(name):
            continue
        if name.lower() == b"content-length":
            lengths += _tokens(value)
        elif name.lower() != b"transfer-encoding" or _tokens(value):
            mended.append(name + b": " + value.strip())
    mended += [b"Content-Length: " + length for length in dict.fromkeys(lengths)]
    return b"\r\n".join([*mended, b"", b""])


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


def with_lines(request: bytes, lines: bytes) -> bytes:
    """Return a request with further header lines at the end of its head.

    They are those of one request alone, so that they need no place in the cache.
    """
    head, _, body = request.partition(b"\r\n\r\n")
    return b"%b\r\n%b\r\n%b" % (head, lines, body)


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


def without_secrets(request: bytes, secrets: tuple[bytes, ...]) -> bytes:
    """Return the bytes of a request with ``[removed]`` in place of the values of secret lines."""
    head, end, body = request.partition(b"\r\n\r\n")
    head += b"\r\n"
    for line in secrets:
        name = line.partition(b":")[0]
        head = head.replace(b"\r\n" + line, b"\r\n%b: [removed]\r\n" % name, 1)
    return head[:-2] + end + body
