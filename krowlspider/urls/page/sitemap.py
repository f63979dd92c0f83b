"""Read a sitemap, which names pages or further sitemaps (sitemaps.org protocol, version 0.9).

One reader serves every form: ``urlset``, ``sitemapindex``, text, RSS and Atom, each plain or gzip.
The locations of pages and sitemaps are read, and where asked for, what it says of their changes:
``lastmod``, ``changefreq``, dates of feeds. ``priority`` is ignored. Images and videos are no
pages; alternates have entries of their own.

The bytes are parsed incrementally, without a tree, so the work can be split into short steps.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from krowlspider.urls.canonical import normalise
from krowlspider.urls.page.sitemap_xml import (
    ELEMENTS_MAX,
    PLACE_MAX,
    TOKEN_MAX,
    BrokenSitemap,
    Claim,
    SitemapOver,
    XmlReader,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# URLs of one sitemap, and its unpacked bytes: the limits of the protocol.
URLS_MAX = 50_000
BYTES_MAX = 50 * 1024 * 1024
# Bytes read in one step.
STEP = 32 * 1024
# Limits as for decoded bodies: gzip members, packed bytes that may yield nothing, and further ones
# per unpacked byte. An ordinary body is one member and larger when unpacked.
MEMBERS_MAX = 1000
IDLE_MAX = 256 * 1024
PACKED_PER_BYTE = 16
# Bytes of a JSON Feed, which is decoded in one step of some milliseconds, and its items that are
# read in each step after that.
JSON_MAX = 1024 * 1024
ITEMS_AT_ONCE = 500

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 31  # zlib's ``wbits``
_JSON_FEED = "https://jsonfeed.org/version/"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
# The UTF-8 byte order mark, and whitespace that some generators write before the declaration.
_BEFORE = b"\xef\xbb\xbf \t\r\n"


class Sitemap(Struct, eq=False):
    """The content of a sitemap, as far as it has been read.

    ``url`` is its own URL, to which relative links of feeds are joined; None if it is not known.
    ``kind`` is the name of its root element, or "text"; None if the body is no sitemap.
    ``children`` are the normalised URLs of the sitemaps that it names; `read` yields those of
    pages. ``found`` counts both, and ``invalid`` the locations that are no http(s) URL. ``size`` is
    the number of unpacked bytes read.

    ``truncated`` is True if a limit was reached. ``error`` is the first error, or None. The URLs
    read before still count; after broken XML, those that can be recognised count too.

    ``claims`` is what it says of changes, since the caller emptied the list; None: it is not read,
    and neither are JSON Feeds. ``titles`` has those of a feed's entries by their URLs; None: they
    are not read.
    """

    url: str | None = None
    kind: str | None = None
    children: list[str] = field(default_factory=list)
    found: int = 0
    invalid: int = 0
    size: int = 0
    truncated: bool = False
    error: str | None = None
    claims: list[Claim] | None = None
    titles: dict[str, str] | None = None
    _pages: list[str] = field(default_factory=list)

    def read(self, body: bytes) -> Iterator[list[str]]:
        """Read a whole body in steps of bounded work; no bytes raise an error.

        Yield after each step the normalised URLs of the pages found in it, often an empty list.
        """
        form: XmlReader | _JsonFeed | _Text | None = None
        try:
            for piece in _pieces(body):
                self.size += len(piece)
                rest = piece
                if form is None:
                    rest = piece if piece.startswith(_UTF16_BOMS) else piece.lstrip(_BEFORE)
                    if rest:
                        form = self._form_of(rest)
                if form is not None:
                    form.feed(rest)
                yield self._take_pages()
            if form is None:
                raise BrokenSitemap("it is empty")
            if isinstance(form, _JsonFeed):
                for _ in form.read():
                    yield self._take_pages()
            else:
                form.end()
        except SitemapOver:
            self.truncated = True
        except BrokenSitemap as broken:
            self.error = self.error or str(broken)
        if self._pages:
            yield self._take_pages()

    def _form_of(self, start: bytes) -> XmlReader | _JsonFeed | _Text:
        if start.startswith((b"<", *_UTF16_BOMS)):
            return XmlReader(self)
        return _JsonFeed(self) if self.claims is not None and start[:1] == b"{" else _Text(self)

    def _take_pages(self) -> list[str]:
        pages, self._pages = self._pages, []
        return pages

    def add(self, place: str, *, is_child: bool = False, base: str | None = None) -> str | None:
        """Count the location of a page or a child, and keep its URL if it is an http(s) URL. Return
        the URL, None for another place.

        A location is joined to ``base``, if that is given; text of several words, or none, is not.

        :raises SitemapOver: URLS_MAX locations were counted already
        """
        if self.found + self.invalid >= URLS_MAX:
            raise SitemapOver
        place = place.strip()
        url = normalise(place, base if len(place.split(None, 1)) == 1 else None)
        if url is None:
            self.invalid += 1
        else:
            self.found += 1
            (self.children if is_child else self._pages).append(url)
        return url


def _pieces(body: bytes) -> Iterator[bytes]:
    """Yield the unpacked body in pieces of at most STEP bytes, some of them empty.

    Each piece comes from at most STEP packed bytes.

    :raises SitemapOver: after BYTES_MAX bytes
    :raises BrokenSitemap: the gzip data is cut short or broken, or unpacks to almost nothing
    """
    room = BYTES_MAX
    for piece in _inflated(body) if body.startswith(_GZIP_MAGIC) else _cut(body):
        room -= len(piece)
        if room < 0:
            raise SitemapOver
        yield piece


def _cut(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), STEP):
        yield body[start : start + STEP]


def _inflated(body: bytes) -> Iterator[bytes]:
    decoder, members, taken, made = zlib.decompressobj(_GZIP), 1, 0, 0
    for window in _cut(body):
        data = window
        taken += len(window)
        if taken > IDLE_MAX + PACKED_PER_BYTE * made:
            raise BrokenSitemap("gzip data that unpacks to next to nothing")
        while data:
            try:
                piece = decoder.decompress(data, STEP)
            except zlib.error as error:
                raise BrokenSitemap(f"broken gzip data: {error}") from error
            made += len(piece)
            yield piece
            data = decoder.unconsumed_tail
            if decoder.eof:
                data = decoder.unused_data
                # Bytes after a member that do not begin another one are padding.
                if not data.startswith(_GZIP_MAGIC[:1]) or members == MEMBERS_MAX:
                    return
                decoder, members = zlib.decompressobj(_GZIP), members + 1
    if not decoder.eof:
        raise BrokenSitemap("the gzip data is cut short")


class _JsonItem(Struct):
    """An item of a JSON Feed; the URL of one without is its id, if that is one."""

    id: Any = None
    url: Any = None
    date_published: Any = None
    date_modified: Any = None


class _JsonDocument(Struct):
    version: str
    items: list[_JsonItem] = []


class _JsonFeed:
    """Reads a JSON Feed (version 1.1); `feed` and `read` raise as those of `XmlReader` do."""

    def __init__(self, sitemap: Sitemap):
        self._sitemap = sitemap
        self._body = b""

    def feed(self, piece: bytes) -> None:
        self._body += piece
        if len(self._body) > JSON_MAX:
            raise BrokenSitemap(f"a JSON Feed of more than {JSON_MAX:,} bytes")

    def read(self) -> Iterator[None]:
        """Read the items, some in each step."""
        sitemap, claims = self._sitemap, self._sitemap.claims
        try:
            found = msgspec.json.decode(self._body, type=_JsonDocument)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise BrokenSitemap(f"it is no JSON Feed: {error}") from error
        if not found.version.startswith(_JSON_FEED):
            raise BrokenSitemap("it is no JSON Feed")
        sitemap.kind = "jsonfeed"
        for number, item in enumerate(found.items, 1):
            place = item.url or item.id
            url = sitemap.add(place, base=sitemap.url) if isinstance(place, str) else None
            dates = (item.date_published, item.date_modified)
            texts = tuple(text for text in dates if isinstance(text, str))
            if url is not None and texts and claims is not None:
                claims.append(Claim(url, texts))
            if number % ITEMS_AT_ONCE == 0:
                yield


class _Text:
    """Reads text with one URL per line, in UTF-8; `feed` and `end` raise as those of `XmlReader`.

    A line ends with LF, CRLF or CR. The body is a sitemap only if its first line is a URL; it may
    be the text of an error page.
    """

    def __init__(self, sitemap: Sitemap):
        self._sitemap = sitemap
        self._lines = 0
        self._rest = b""

    def feed(self, piece: bytes) -> None:
        text = (self._rest + piece).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._rest = text.split(b"\n")
        self._lines += len(lines)
        for line in lines:
            if place := line.strip():
                self._line(place[:PLACE_MAX].decode(errors="replace"))
        if self._lines > ELEMENTS_MAX:
            raise SitemapOver
        if len(self._rest) > TOKEN_MAX:
            raise BrokenSitemap("a line without end")

    def end(self) -> None:
        self.feed(b"\n")

    def _line(self, place: str) -> None:
        if self._sitemap.kind is None and normalise(place) is None:
            raise BrokenSitemap("it is no sitemap")
        self._sitemap.kind = "text"
        self._sitemap.add(place)
