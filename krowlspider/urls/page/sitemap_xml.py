"""Find the locations in a sitemap of any XML form, well-formed or not.

Decide which texts and attributes of a sitemap are locations of pages or sitemaps, and which say
when these have changed. `LocationScan` finds them where the XML is not well-formed, from its first
error on.

Read a sitemap in any XML form: ``urlset``, ``sitemapindex``, RSS, Atom. expat parses the bytes
piece by piece. From an error of the XML on, `LocationScan` reads the rest.
"""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, NamedTuple, Protocol
from xml.parsers import expat

from krowlspider.urls.canonical import REFERENCE_MAX, URL_MAX, normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Kinds of text. A sitemap, or an entry without ``loc``, may name its URL as plain text.
PAGE, CHILD, LINK, GUID = "page", "child", "link", "guid"
PAGE_TEXT, CHILD_TEXT = "page text", "child text"
DATE, FREQUENCY, TITLE = "date", "frequency", "title"
# Such a text ends at the next tag, others at the end of their element.
PLAIN = frozenset({PAGE_TEXT, CHILD_TEXT})
# Elements that name one page or sitemap each.
ENTRIES = frozenset({"url", "sitemap", "item", "entry"})

# By parent and element; the parent excludes the ``loc`` of an image. An entry may be missing.
_KINDS = {
    ("url", "loc"): PAGE,
    ("urlset", "loc"): PAGE,
    ("sitemap", "loc"): CHILD,
    ("sitemapindex", "loc"): CHILD,
    ("item", "link"): LINK,
    ("item", "guid"): GUID,
}
# What an entry says of changes: sitemaps, RSS 2.0 and 1.0, Atom 1.0 and 0.3.
_CLAIM_KINDS = {
    **dict.fromkeys((("url", "lastmod"), ("sitemap", "lastmod")), DATE),
    ("url", "changefreq"): FREQUENCY,
    **dict.fromkeys((("item", name) for name in ("pubdate", "date", "updated")), DATE),
    **dict.fromkeys((("entry", name) for name in ("updated", "published", "modified")), DATE),
}
_TITLE_KINDS = {("item", "title"): TITLE, ("entry", "title"): TITLE}
# Characters of a title that are kept.
_TITLE_MAX = 300
# Dates of one entry that are kept.
_DATES_MAX = 4
_PLAIN_KINDS = {"url": PAGE_TEXT, "sitemap": CHILD_TEXT}
_PROTOCOL = frozenset({"urlset", "sitemapindex"})
_ENTRY_LINK = ("entry", "link")


class Claim(NamedTuple):
    """What a document says of a page: the texts of its dates, and how often it changes."""

    url: str
    dates: tuple[str, ...]
    frequency: str = ""


class SitemapContent(Protocol):
    """What was found in a document: `Sitemap`. ``claims`` and ``titles`` are None where they are
    not read."""

    url: str | None
    kind: str | None
    error: str | None
    claims: list[Claim] | None
    titles: dict[str, str] | None

    def add(self, place: str, *, is_child: bool = False, base: str | None = None) -> str | None: ...


class Locations:
    """Adds the locations of one sitemap to ``found``, told its elements in document order.

    ``root`` is the name of the root element. ``base`` is the URL to which the links of feeds are
    relative (RFC 4287, section 2); None if it is not known. All names are in lower case.
    """

    def __init__(self, found: SitemapContent, root: str):
        self._add = found.add
        self._found = found
        self._kinds = _KINDS
        if found.claims is not None:
            self._kinds = self._kinds | _CLAIM_KINDS
        if found.titles is not None:
            self._kinds = self._kinds | _TITLE_KINDS
        if self._kinds is not _KINDS:
            self._add = self._add_to_entry
        self.root = root
        self.base = found.url
        # Of the entry that is being read: its URLs, dates, frequency and title.
        self._urls: list[str] = []
        self._dates: list[str] = []
        self._frequency = ""
        self._title = ""
        # Of the item that is being read: whether it has a link, and its guid if that is a URL.
        self._is_linked = False
        self._guid = ""

    def start(self, parent: str, name: str, attributes: Mapping[str, str]) -> str | None:
        """Take a start tag; return the kind of the text that follows, None if it is no location."""
        kind = self._kinds.get((parent, name))
        if kind is not None:
            return None if kind == GUID and _is_no_url(attributes) else kind
        if name in ENTRIES:
            self.end_entry()
            return _PLAIN_KINDS.get(name) if self.root in _PROTOCOL else None
        if (parent, name) == _ENTRY_LINK and attributes.get("rel", "alternate") == "alternate":
            self._add(attributes.get("href", ""), base=self.base)
        return None

    def take(self, kind: str, text: str) -> None:
        """Take the text of a kind that `start` has returned."""
        if kind in PLAIN:
            # Nearly all such texts are white space.
            if (text := text.strip()) and normalise(text) is not None:
                self._add(text, is_child=kind == CHILD_TEXT)
        elif kind == GUID:
            self._guid = text
        elif kind == DATE:
            if len(self._dates) < _DATES_MAX:
                self._dates.append(text)
        elif kind == FREQUENCY:
            self._frequency = text
        elif kind == TITLE:
            # Those of other vocabularies, such as media:title, mostly follow.
            self._title = self._title or " ".join(text.split())[:_TITLE_MAX]
        elif kind != LINK:
            self._add(text, is_child=kind == CHILD)
        elif text.strip():
            # An empty one has its URL in an attribute, and is about the feed itself.
            self._is_linked = True
            self._add(text, base=self.base)

    def _add_to_entry(
        self, place: str, *, is_child: bool = False, base: str | None = None
    ) -> str | None:
        url = self._found.add(place, is_child=is_child, base=base)
        if url is not None:
            self._urls.append(url)
        return url

    def end_entry(self) -> None:
        """End an entry. The page of an item of RSS without link is its guid, if that is a URL."""
        if self._guid and not self._is_linked and normalise(self._guid.strip()) is not None:
            self._add(self._guid)
        self._guid, self._is_linked = "", False
        claims, titles = self._found.claims, self._found.titles
        if titles is not None and self._title:
            for url in self._urls:
                titles.setdefault(url, self._title)
            self._title = ""
        if claims is not None and (self._dates or self._frequency):
            dates = tuple(self._dates)
            claims += [Claim(url, dates, self._frequency) for url in self._urls]
            self._dates, self._frequency = [], ""
        self._urls.clear()

    def joined(self, base: str) -> str | None:
        """Return the base within an element with this ``xml:base``, the outer one if it is bad."""
        url = normalise(base.strip(), self.base)
        return self.base if url is None or len(url) > URL_MAX else url


def _is_no_url(attributes: Mapping[str, str]) -> bool:
    """Return whether a guid says that it is no URL; by default it is one (RSS 2.0)."""
    said = (value for name, value in attributes.items() if name.lower() == "ispermalink")
    return next(said, "true").strip().lower() == "false"


# Levels of nested elements. All forms and their extensions use at most six, and expat keeps each
# open element in memory.
NESTING_MAX = 32
# Bytes of one tag or comment: an unfinished one is scanned again at each step.
TOKEN_MAX = 256 * 1024
# Characters of a location that are read: one more than are parsed.
PLACE_MAX = REFERENCE_MAX + 1
BASE = "xml:base"

_TAG = re.compile(rb"<(/?)([^\s<>/!?][^<>]*)>")
_REFERENCE = re.compile(r"&(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")
_ATTRIBUTE = re.compile(
    r"""\s(href|rel|isPermaLink|xml:base)\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE
)
# Only these elements are asked for attributes.
_ASKED = frozenset({"link", "guid"})
_CDATA = "<![CDATA["


class LocationScan:
    """Reads tags in any order, and hands them to ``locations``.

    ``opened`` are the names of the elements that are open at the start, and ``base`` is the base
    outside of the entry that is open, if any. ``tags`` counts the tags read. A bare ``&`` is taken
    as it is, and entries end where the next one begins.
    """

    def __init__(
        self, locations: Locations, opened: Iterable[str], base: str | None, encoding: str
    ):
        self._locations = locations
        self._opened = list(opened)
        self._base = base
        self._in_entry = not ENTRIES.isdisjoint(self._opened)
        self._encoding = encoding
        # The bytes that wait for the next step: the text of a location, or an unfinished tag.
        self._rest = b""
        # The kind of the text that is being read, or None.
        self._kind: str | None = None
        self.tags = 0

    def feed(self, piece: bytes) -> None:
        data, read = self._rest + piece, 0
        for tag in _TAG.finditer(data):
            self._end_text(data[read : tag.start()])
            read = tag.end()
            self.tags += 1
            self._tag(self._decoded(tag[2]), closes=bool(tag[1]))
        if self._kind is None:
            unfinished = data.rfind(b"<", read)
            read = len(data) if unfinished < 0 else unfinished
        self._rest = data[read:]
        if len(self._rest) > TOKEN_MAX:
            self._rest, self._kind = b"", None

    def end(self) -> None:
        """Take a location that is whole, though the file ends within the tag behind it."""
        text, tag, _ = self._rest.partition(b"<")
        if tag:
            self._end_text(text)
        self._locations.end_entry()

    def _end_text(self, data: bytes) -> None:
        if self._kind is not None:
            kind, self._kind = self._kind, None
            self._locations.take(kind, self._text(data))

    def _decoded(self, data: bytes) -> str:
        return data.decode(self._encoding, errors="replace")

    def _text(self, data: bytes) -> str:
        text = self._decoded(data).strip()
        if text.startswith(_CDATA):
            return text.removeprefix(_CDATA).partition("]]>")[0][:PLACE_MAX]
        return _unescaped(text)[:PLACE_MAX]

    def _tag(self, text: str, *, closes: bool) -> None:
        name = (text.split(None, 1) or [""])[0].rstrip("/").rpartition(":")[2].lower()
        opened = self._opened
        if closes:
            if name in opened:
                while opened.pop() != name:
                    pass
            if name in ENTRIES:
                self._locations.end_entry()
                self._end_entry()
            return
        if name in ENTRIES:
            self._end_entry()
            opened.clear()
            self._in_entry = True
        attributes: dict[str, str] = {}
        if name in _ASKED or BASE in text:
            attributes = {
                key.lower(): _unescaped(one or two) for key, one, two in _ATTRIBUTE.findall(text)
            }
        outer = self._locations.base
        if BASE in attributes:
            self._locations.base = self._locations.joined(attributes[BASE])
        kind = self._locations.start(
            opened[-1] if opened else self._locations.root, name, attributes
        )
        if text.endswith("/"):
            self._locations.base = outer
            return
        if not self._in_entry:
            self._base = self._locations.base
        self._kind = kind
        opened.append(name)
        del opened[:-NESTING_MAX]

    def _end_entry(self) -> None:
        self._locations.base, self._in_entry = self._base, False


def _unescaped(text: str) -> str:
    """Return a text with its references replaced, if they are of XML and have a semicolon."""
    return _REFERENCE.sub(lambda found: unescape(found[0]), text)


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

    def __init__(self, found: SitemapContent):
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
