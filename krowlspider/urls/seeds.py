"""Parse the lines of seed files, and of lists of domains that others publish.

Lists are those of Tranco and Majestic Million, zone files, and plain ones.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from krowlspider.urls.canonical import URL_MAX, normalise
from krowlspider.urls.host import has_bad_port, host_of, port_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    ReadLine = Callable[[bytes], "Seed | None"]


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
    if ":" in host and has_bad_port(host):
        raise BadSeed(f"port {port_of(host)} is of another protocol, and never asked")
    return normal


# Lines by which a format is recognised, blank lines and comments not counted.
_LOOK = 10


def ranked(line: bytes) -> Seed | None:
    """Return the seed of a line ``rank,domain``. Cisco Umbrella's list has this format too."""
    rank, _, domain = line.partition(b",")
    if not rank.isdigit() or b"," in domain:
        raise BadSeed("not of the form rank,domain")
    return _named(domain)


class Majestic:
    """Comma-separated fields, below a header that names one of them Domain."""

    def __init__(self) -> None:
        self._column: int | None = None

    def seed(self, line: bytes) -> Seed | None:
        if self._column is None:
            names = [_unquoted(each).lower() for each in line.split(b",")]
            if not {b"globalrank", b"domain"} <= set(names):
                raise BadSeed("there is no header line with GlobalRank and Domain before it")
            self._column = names.index(b"domain")
            return None
        fields = line.split(b",", self._column + 1)
        if len(fields) <= self._column:
            raise BadSeed(f"fewer than {self._column + 1} fields")
        return _named(fields[self._column])


class Zone:
    """Records ``name TTL IN type data`` of a zone, as the CZDS publishes them.

    The seeds are the delegated names directly below the apex. The NS records of a name follow each
    other. The apex is the owner of the SOA record, or the last label of the first delegated name.
    """

    def __init__(self) -> None:
        self._apex = b""
        self._last = b""

    def seed(self, line: bytes) -> Seed | None:
        if line.startswith((b";", b"$")):
            return None
        fields = line.split(None, 4)
        if len(fields) < 5 or fields[2].upper() != b"IN" or not fields[1].isdigit():
            raise BadSeed("not of the form name TTL IN type data")
        kind = fields[3].upper()
        if kind not in (b"NS", b"SOA"):
            return None
        name = fields[0].lower().rstrip(b".")
        if kind == b"SOA":
            self._apex = name
            return None
        self._apex = self._apex or name.rpartition(b".")[2]
        if name == self._last or name.partition(b".")[2] != self._apex:
            return None
        self._last = name
        return _named(name)


# What reads a file, by the names of --format. The order is that of recognition: `parse_seed` takes
# lines of Tranco's too.
FORMATS: dict[str, Callable[[], ReadLine]] = {
    "tranco": lambda: ranked,
    "majestic": lambda: Majestic().seed,
    "czds": lambda: Zone().seed,
    "plain": lambda: parse_seed,
}


def content(line: bytes) -> bytes:
    """Return a line without what surrounds its text; empty for a blank line or a comment."""
    text = line.removeprefix(_BOM).strip()
    return b"" if text.startswith(b"#") else text


def recognise(lines: Iterable[bytes]) -> str | None:
    """Return the name of the format of the first line that has one, or None."""
    for line in islice(filter(None, map(content, lines)), _LOOK):
        for name, begin in FORMATS.items():
            with suppress(BadSeed):
                begin()(line)
                return name
    return None


def seed_text(seed: Seed) -> str:
    """Return a seed as a line of a file of seeds, which is read as the same seed."""
    if not seed.bare:
        return seed.url
    host, _, path = seed.url.removeprefix("https://").partition("/")
    return f"{host}/{path}" if path else host


def _named(field: bytes) -> Seed:
    seed = parse_seed(_unquoted(field))
    if seed is None:
        raise BadSeed("no domain")
    return seed


def _unquoted(field: bytes) -> bytes:
    return field.strip().strip(b'"')
