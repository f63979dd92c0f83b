"""Read a sitemap in any XML form: ``urlset``, ``sitemapindex``, RSS, Atom.

expat parses the bytes piece by piece. From an error of the XML on, `LocationScan` reads the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.parsers import expat

from krowlspider.urls.page.sitemap_scan import (
    BASE,
    ENTRIES,
    NESTING_MAX,
    PLACE_MAX,
    PLAIN,
    TOKEN_MAX,
    Locations,
    LocationScan,
)

if TYPE_CHECKING:
    from krowlspider.urls.page.sitemap_scan import Found

# Elements, or lines of text, that are read: forty for each URL, images included.
ELEMENTS_MAX = 2_000_000

_ROOTS = frozenset({"urlset", "sitemapindex", "rss", "rdf", "feed"})


class SitemapOver(Exception):
    """A limit is reached: the rest of the sitemap is left out."""


class BrokenSitemap(Exception):
    """The body cannot be read further, or is no sitemap; the message is the reason."""


class XmlReader:
    """Reads any XML form; `feed` and `end` raise SitemapOver or BrokenSitemap where reading stops.

    A document type must not define anything. Without definitions, expat knows only the five
    predefined entities and numeric ones. It opens no file or URL that a document names.
    """

    def __init__(self, found: Found):
        self._found = found
        self._locations = Locations(found, "")
        self._open: list[str] = []
        self._elements = 0
        self._fed = 0
        # Elements with ``xml:base``: the number of elements that each is in, and the base outside.
        self._bases: list[tuple[int, str | None]] = []
        # The kind of the text that is being read, the text, and the number of elements that its
        # element is in.
        self._kind: str | None = None
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
            if self._found.kind is None:
                raise BrokenSitemap(reason) from error
            self._found.error = reason
            self._recover()
            return
        if self._fed - self._parser.CurrentByteIndex > TOKEN_MAX:
            raise BrokenSitemap("a tag or comment without end")
        waiting = self._fed - self._start_of_scan
        self._window = self._window[-waiting:] if waiting <= TOKEN_MAX else b""

    def end(self) -> None:
        self.feed(b"", end=True)
        if self._scan is not None:
            self._scan.end()

    def _recover(self) -> None:
        """Scan the bytes from the last tag on, or from the location that was being read."""
        waiting = self._fed - self._start_of_scan
        opened = self._open if self._kind is None else self._open[: self._depth]
        entry = next((at for at, name in enumerate(opened) if name in ENTRIES), len(opened))
        outer = (base for depth, base in self._bases if depth >= entry)
        base = next(outer, self._locations.base)
        self._scan = LocationScan(self._locations, opened, base, self._encoding)
        self._go_on(self._scan, self._window[-waiting:])

    def _go_on(self, scan: LocationScan, piece: bytes) -> None:
        scan.feed(piece)
        if self._elements + scan.tags > ELEMENTS_MAX:
            raise SitemapOver

    def _declared(self, version: str, encoding: str | None, standalone: int) -> None:
        self._encoding = encoding or self._encoding

    def _doctype(self, name: str, system: str | None, public: str | None, defines: int) -> None:
        if defines:
            raise BrokenSitemap("its document type defines entities")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > ELEMENTS_MAX:
            raise SitemapOver
        local = name.rpartition(":")[2].lower()
        opened = self._open
        if self._kind in PLAIN:
            self._end_text()
        if self._kind is None:
            # Behind the "<", so that a scan does not read this tag again.
            self._start_of_scan = self._parser.CurrentByteIndex + 1
        if len(opened) == NESTING_MAX:
            raise BrokenSitemap("elements within one another without end")
        if not opened:
            if local not in _ROOTS:
                raise BrokenSitemap("it is no sitemap")
            self._found.kind = local
            self._locations = Locations(self._found, local)
        if BASE in attributes:
            self._bases.append((len(opened), self._locations.base))
            self._locations.base = self._locations.joined(attributes[BASE])
        if opened and self._kind is None:
            self._kind = self._locations.start(opened[-1], local, attributes)
            if self._kind is not None:
                self._place, self._depth = "", len(opened)
                self._start_of_scan = self._parser.CurrentByteIndex
                self._parser.CharacterDataHandler = self._text
        opened.append(local)

    def _text(self, text: str) -> None:
        self._place += text[: PLACE_MAX - len(self._place)]

    def _end(self, name: str) -> None:
        local = self._open.pop()
        # Other elements are inside a location.
        if self._kind is None or self._kind in PLAIN or len(self._open) == self._depth:
            if self._kind is not None:
                self._end_text()
            self._start_of_scan = self._parser.CurrentByteIndex + 1
            if local in ENTRIES:
                self._locations.end_entry()
        if self._bases and self._bases[-1][0] == len(self._open):
            self._locations.base = self._bases.pop()[1]

    def _end_text(self) -> None:
        kind, self._kind = self._kind, None
        self._parser.CharacterDataHandler = None
        if kind is not None:
            self._locations.take(kind, self._place)
