"""Read a sitemap, which names pages or further sitemaps (sitemaps.org protocol, version 0.9).

One reader serves every form: ``urlset``, ``sitemapindex``, text, RSS and Atom, each plain or gzip.
Only the locations of pages and sitemaps are read. ``lastmod``, ``changefreq`` and ``priority`` are
claims of the site and are ignored. Images and videos are no pages; alternates have entries of their
own.

expat parses the bytes incrementally, without a tree, so the work can be split into short steps.
From an error of the XML on, `LocationScan` reads the rest.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.parsers import expat

from krowlspider.urls.canonical import normalise
from krowlspider.urls.page.sitemap_scan import (
    CHILD,
    ENTRY_LINK,
    NESTING_MAX,
    PAGE,
    PLACE_MAX,
    TOKEN_MAX,
    LocationScan,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# URLs of one sitemap, and its unpacked bytes: the limits of the protocol.
URLS_MAX = 50_000
BYTES_MAX = 50 * 1024 * 1024
# Bytes read in one step.
STEP = 32 * 1024
# Elements, or lines of text, that are read: forty for each URL, images included.
ELEMENTS_MAX = 2_000_000
# Limits as for decoded bodies: gzip members, packed bytes that may yield nothing, and further ones
# per unpacked byte. An ordinary body is one member and larger when unpacked.
MEMBERS_MAX = 1000
IDLE_MAX = 256 * 1024
PACKED_PER_BYTE = 16

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 31  # zlib's ``wbits``
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
# The UTF-8 byte order mark, and whitespace that some generators write before the declaration.
_BEFORE = b"\xef\xbb\xbf \t\r\n"
_ROOTS = frozenset({"urlset", "sitemapindex", "rss", "rdf", "feed"})


class _Over(Exception):
    """A limit is reached: the rest of the sitemap is left out."""


class _Broken(Exception):
    """The body cannot be read further, or is no sitemap; the message is the reason."""


@dataclass(slots=True, eq=False)
class Sitemap:
    """The content of a sitemap, as far as it has been read.

    ``kind`` is the name of its root element, or "text"; None if the body is no sitemap.
    ``children`` are the normalised URLs of the sitemaps that it names; `read` yields those of
    pages. ``found`` counts both, and ``invalid`` the locations that are no http(s) URL. ``size`` is
    the number of unpacked bytes read.

    ``truncated`` is True if a limit was reached. ``error`` is the first error, or None. The URLs
    read before still count; after broken XML, those that can be recognised count too.
    """

    kind: str | None = None
    children: list[str] = field(default_factory=list)
    found: int = 0
    invalid: int = 0
    size: int = 0
    truncated: bool = False
    error: str | None = None
    _pages: list[str] = field(default_factory=list)

    def read(self, body: bytes) -> Iterator[list[str]]:
        """Read a whole body in steps of bounded work; no bytes raise an error.

        Yield after each step the normalised URLs of the pages found in it, often an empty list.
        """
        form: _Xml | _Text | None = None
        try:
            for piece in _pieces(body):
                self.size += len(piece)
                rest = piece
                if form is None:
                    rest = piece if piece.startswith(_UTF16_BOMS) else piece.lstrip(_BEFORE)
                    if rest:
                        xml = rest.startswith((b"<", *_UTF16_BOMS))
                        form = _Xml(self) if xml else _Text(self)
                if form is not None:
                    form.feed(rest)
                yield self._take_pages()
            if form is None:
                raise _Broken("it is empty")
            form.end()
        except _Over:
            self.truncated = True
        except _Broken as broken:
            self.error = self.error or str(broken)
        if self._pages:
            yield self._take_pages()

    def _take_pages(self) -> list[str]:
        pages, self._pages = self._pages, []
        return pages

    def add(self, place: str, *, is_child: bool = False) -> None:
        """Count the location of a page or a child, and keep its URL if it is an http(s) URL.

        :raises _Over: URLS_MAX locations were counted already
        """
        if self.found + self.invalid >= URLS_MAX:
            raise _Over
        url = normalise(place.strip())
        if url is None:
            self.invalid += 1
        else:
            self.found += 1
            (self.children if is_child else self._pages).append(url)


def _pieces(body: bytes) -> Iterator[bytes]:
    """Yield the unpacked body in pieces of at most STEP bytes, some of them empty.

    Each piece comes from at most STEP packed bytes.

    :raises _Over: after BYTES_MAX bytes
    :raises _Broken: the gzip data is cut short or broken, or unpacks to almost nothing
    """
    room = BYTES_MAX
    for piece in _inflated(body) if body.startswith(_GZIP_MAGIC) else _cut(body):
        room -= len(piece)
        if room < 0:
            raise _Over
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
            raise _Broken("gzip data that unpacks to next to nothing")
        while data:
            try:
                piece = decoder.decompress(data, STEP)
            except zlib.error as error:
                raise _Broken(f"broken gzip data: {error}") from error
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
        raise _Broken("the gzip data is cut short")


class _Xml:
    """Reads any XML form; `feed` and `end` raise _Over or _Broken where reading stops.

    A document type must not define anything. Without definitions, expat knows only the five
    predefined entities and numeric ones. It opens no file or URL that a document names.
    """

    def __init__(self, sitemap: Sitemap):
        self._sitemap = sitemap
        self._open: list[str] = []
        self._elements = 0
        self._fed = 0
        # The text of the location that is being read, and the number of elements that it is in.
        self._place = ""
        self._depth = 0
        # Where a scan would begin, as an index of all bytes, and the bytes from there on.
        self._start_of_scan = 0
        self._window = b""
        self._encoding = "utf-8"
        self._scan: LocationScan | None = None
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.XmlDeclHandler = self._declared
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end

    def feed(self, piece: bytes, *, end: bool = False) -> None:
        if self._scan is not None:
            self._go_on(self._scan, piece)
            return
        self._window += piece
        self._fed += len(piece)
        try:
            self._parser.Parse(piece, end)
        except (expat.ExpatError, LookupError, ValueError) as error:
            # LookupError, ValueError: Python does not know the encoding, or has no table for it.
            reason = f"broken XML: {error}"
            if self._sitemap.kind is None:
                raise _Broken(reason) from error
            self._sitemap.error = reason
            self._recover()
            return
        if self._fed - self._parser.CurrentByteIndex > TOKEN_MAX:
            raise _Broken("a tag or comment without end")
        waiting = self._fed - self._start_of_scan
        self._window = self._window[-waiting:] if waiting <= TOKEN_MAX else b""

    def _recover(self) -> None:
        """Scan the bytes from the last tag on, or from the location that was being read."""
        waiting = self._fed - self._start_of_scan
        opened = self._open[: self._depth] if self._reads_place else self._open
        self._scan = LocationScan(self._sitemap.add, opened, self._encoding)
        self._go_on(self._scan, self._window[-waiting:])

    def _go_on(self, scan: LocationScan, piece: bytes) -> None:
        scan.feed(piece)
        if self._elements + scan.tags > ELEMENTS_MAX:
            raise _Over

    @property
    def _reads_place(self) -> bool:
        return self._parser.CharacterDataHandler is not None

    def end(self) -> None:
        self.feed(b"", end=True)

    def _declared(self, version: str, encoding: str | None, standalone: int) -> None:
        self._encoding = encoding or self._encoding

    def _doctype(self, name: str, system: str | None, public: str | None, defines: int) -> None:
        if defines:
            raise _Broken("its document type defines entities")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > ELEMENTS_MAX:
            raise _Over
        local = name.rpartition(":")[2].lower()
        opened = self._open
        if not self._reads_place:
            # Behind the "<", so that a scan does not read this tag again.
            self._start_of_scan = self._parser.CurrentByteIndex + 1
        if len(opened) == NESTING_MAX:
            raise _Broken("elements within one another without end")
        if opened:
            where = (opened[-1], local)
            if where in PAGE or where == CHILD:
                self._place, self._depth = "", len(opened)
                self._start_of_scan = self._parser.CurrentByteIndex
                self._parser.CharacterDataHandler = self._text
            elif where == ENTRY_LINK and attributes.get("rel", "alternate") == "alternate":
                self._sitemap.add(attributes.get("href", ""))
        elif local in _ROOTS:
            self._sitemap.kind = local
        else:
            raise _Broken("it is no sitemap")
        opened.append(local)

    def _text(self, text: str) -> None:
        self._place += text[: PLACE_MAX - len(self._place)]

    def _end(self, name: str) -> None:
        local = self._open.pop()
        if not self._reads_place:
            self._start_of_scan = self._parser.CurrentByteIndex + 1
            return
        where = (self._open[-1], local)
        # Other elements are inside a location.
        if where in PAGE or where == CHILD:
            self._parser.CharacterDataHandler = None
            self._start_of_scan = self._parser.CurrentByteIndex + 1
            self._sitemap.add(self._place, is_child=where == CHILD)


class _Text:
    """Reads text with one URL per line, in UTF-8; `feed` and `end` raise _Over or _Broken.

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
            raise _Over
        if len(self._rest) > TOKEN_MAX:
            raise _Broken("a line without end")

    def end(self) -> None:
        self.feed(b"\n")

    def _line(self, place: str) -> None:
        if self._sitemap.kind is None and normalise(place) is None:
            raise _Broken("it is no sitemap")
        self._sitemap.kind = "text"
        self._sitemap.add(place)
