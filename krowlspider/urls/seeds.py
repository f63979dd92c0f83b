"""Parse the lines of a seed file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import host_of
from krowlspider.urls.length import URL_MAX
from krowlspider.urls.ports import is_blocked, port_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# Bytes of a line that are read; the rest of the line is skipped.
_LINE_MAX = 65536
_BOM = b"\xef\xbb\xbf"
_COMMENT = re.compile(r"(?:^|\s)#.*", re.DOTALL)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# "1,google.com", as in lists of the top million sites.
_RANKED = re.compile(r"^\d+,(?=\S)")
# The characters of a host. The URL parser also accepts commas and quotes, but no name server does.
_HOST = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?(?::\d+)?|\[.*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_WHITESPACE = " \t\r\n"
# User name and password, where a URL or a line without a scheme has them.
_CREDENTIALS = re.compile(r"(^[ \t]*|//)[^/?#\s]*@", re.MULTILINE)


class BadSeed(ValueError):
    """A line is no seed; the message is the reason."""


class ListLine(BadSeed):
    """A line is no seed, but looks as one of a list that ``scrapy seeds`` converts."""


class _Readable(Protocol):
    def readline(self, size: int = -1, /) -> bytes: ...


@dataclass(slots=True)
class Seed:
    """A normalised URL to start from; ``bare`` if given without a scheme, so https is a guess."""

    url: str
    bare: bool


def parse_seed(line: bytes) -> Seed | None:
    """Return the seed in a line: a URL, a bare domain (with port or path), or ``rank,domain``.

    None for a blank line, or a comment: "#" at the start of the line or after whitespace.

    :raises BadSeed: the line is anything else
    """
    try:
        text = line.removeprefix(_BOM).decode()
    except UnicodeDecodeError as e:
        raise BadSeed("not UTF-8") from e
    text = _COMMENT.sub("", text.strip(_WHITESPACE)).strip(_WHITESPACE)
    if not text:
        return None
    text = _RANKED.sub("", text)
    _check(text)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Seed(_bare_url(text), bare=True)
    if scheme[1].lower() not in ("http", "https"):
        raise BadSeed(f"scheme {scheme[1]}, neither http nor https")
    return Seed(_url(text, text), bare=False)


def seed_lines(file: _Readable) -> Iterator[bytes]:
    """Yield the lines of a file; of a line that is too long to be a seed, only the beginning."""
    while line := file.readline(_LINE_MAX):
        yield line
        while not line.endswith(b"\n") and (line := file.readline(_LINE_MAX)):
            pass


def without_credentials(text: str) -> str:
    """Return lines of seeds without user names and passwords, for logs and archives."""
    return _CREDENTIALS.sub(r"\1...@", text)


def _shown(text: str) -> str:
    return repr(without_credentials(text)[:80])


def _check(text: str) -> None:
    if len(text) > URL_MAX:
        raise BadSeed(f"longer than {URL_MAX} characters")
    if _CONTROL.search(text):
        raise BadSeed("a control character inside")
    fields = text.split()
    if len(fields) > 3 and fields[1].isdigit() and fields[2].upper() == "IN":
        raise ListLine(f"a record of a zone file: {_shown(text)}")
    if len(fields) > 1:
        raise BadSeed("whitespace inside")


def _bare_url(text: str) -> str:
    name = re.split(r"[/?#:]", text, maxsplit=1)[0]
    if "," in name:
        raise ListLine(f"several fields: {_shown(text)}")
    if "." not in name.strip(".") and name != "localhost" and not name.startswith("["):
        raise BadSeed(f"neither a URL nor a domain: {_shown(text)}")
    return _url(f"https://{text}", text)


def _url(url: str, text: str) -> str:
    normal = normalise(url)
    if normal is None:
        raise BadSeed(f"not a URL, or one with a user name: {_shown(text)}")
    host = host_of(normal)
    if not _HOST.fullmatch(host):
        raise BadSeed(f"not a host name: {host[:80]!r}")
    if ":" in host and is_blocked(host):
        raise BadSeed(f"port {port_of(host)} is of another protocol, and never asked")
    return normal
