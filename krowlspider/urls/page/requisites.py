"""Find the requisites of a page: the pictures, style sheets, scripts and fonts that it needs.

A page's own scan finds them (`COLUMNS` of its plan). What they refer to in turn is found in the
style sheets and web app manifests themselves.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from html import unescape
from typing import TYPE_CHECKING, NamedTuple, Self

from krowlspider.urls.canonical import normalise_each
from krowlspider.urls.page.css import urls_in
from krowlspider.urls.page.queries import encode_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

# Requisites taken from one page, style sheet or manifest.
MAX_REQUISITES = 1000
# Style sheets on the way from a page to a requisite, itself included.
LEVELS_MAX = 5
# Bytes of a web app manifest that are read.
MANIFEST_MAX = 256 * 1024
# Characters of a page's own CSS that are read, of its ``link`` elements, and of its ``srcset``.
_TEXT_MAX = 256 * 1024
# Characters of a tag that are read.
_TAG_LENGTH_MAX = 8192

IMAGE, STYLE, MANIFEST, OTHER = "image", "style", "manifest", "other"
_KINDS = frozenset({IMAGE, STYLE, MANIFEST, OTHER})

# Selectors of the reading plan. Each one between commas costs time per element of a page.
# The source of an element is read of ``link`` alone, which has no content.
COLUMNS = (
    "link",
    "style::text",
    (
        "img::attr(src), img::attr(data-src), video::attr(poster), :is(image, use)::attr(href),"
        " :is(image, use)::attr(xlink:href)"
    ),
    "[srcset]::attr(srcset), [data-srcset]::attr(data-srcset)",
    "[src]:not(iframe):not(frame):not(img)::attr(src), object::attr(data)",
    '[style*="url(" i]::attr(style)',
)

# The possessive "*+" keeps these expressions linear in the length of the text. A value is not made
# optional by "?+": before Python 3.11.5 a failed repetition is not undone (gh-106052).
_ATTRIBUTE = re.compile(
    r"""([^\s"'<>/=]++)(?:\s*+=\s*+(?:"([^"]*+)"?|'([^']*+)'?|([^\s"'=<>`]++)))?"""
)
# HTML, section 4.8.4.3.10: commas end a URL only at its end, descriptors may have them in
# parentheses.
_CANDIDATE = re.compile(
    r"([^\s,](?:\S*[^\s,])?+)(?:,++|\s++[^,(]*+(?:\([^)]*+\)?+[^,(]*+)*+)?+", re.ASCII
)
_FONT = re.compile(r"\.(?:woff2?|ttf|otf|eot)(?:[?#]|\Z)", re.IGNORECASE)
# Such URLs may be long, so they are not parsed.
_DATA = frozenset({"data:", "DATA:"})
_ICONS = frozenset({"icon", "apple-touch-icon", "apple-touch-icon-precomposed", "mask-icon"})


class Requisite(NamedTuple):
    """What a requisite is for.

    ``kind`` is IMAGE, STYLE, MANIFEST or OTHER. ``level`` is the number of style sheets on the way
    to it, itself included.
    """

    kind: str
    level: int

    def pack(self) -> bytes:
        """Return the form in which a queue entry keeps it."""
        return b"%d%b" % (self.level, self.kind.encode())

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """:raises ValueError: `pack` does not return such bytes"""
        return cls.checked([packed[1:].decode("ascii"), int(packed[:1])])

    @classmethod
    def checked(cls, value: object) -> Self:
        """Return the requisite that a list of kind and level describes.

        :raises ValueError: it is no such list, or the level is above LEVELS_MAX
        """
        match value:
            case [str(kind), int(level)] if kind in _KINDS and 0 <= level <= LEVELS_MAX:
                return cls(kind, level)
        raise ValueError("it is no kind and level of a requisite")


@dataclass(slots=True, eq=False)
class Requisites:
    """The requisites of one document.

    ``found`` has the kind of each normalised URL. ``refused`` counts references that are no http(s)
    URL, ``oversize`` those too long to be parsed, and ``surplus`` those after the first
    MAX_REQUISITES. ``has_icon`` is true if the document names an icon.
    """

    found: dict[str, str] = field(default_factory=dict)
    refused: int = 0
    oversize: int = 0
    surplus: int = 0
    has_icon: bool = False


class _References:
    """The references of a document as they are written, with their kinds."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.result = Requisites()

    def first(self, texts: list[str]) -> list[str]:
        """Return the texts of a page that are read; each of the others counts as one reference."""
        if not texts:
            return texts
        read: list[str] = []
        room = _TEXT_MAX
        for text in texts[:MAX_REQUISITES]:
            if room <= 0:
                break
            read.append(text[:room])
            room -= len(text)
        self.result.surplus += len(texts) - len(read)
        return read

    def add(self, kind: str, references: Iterable[str]) -> None:
        kinds, result = self.kinds, self.result
        for reference in references:
            if reference[:5] in _DATA:
                result.refused += 1
            elif reference in kinds:
                continue
            elif len(kinds) < MAX_REQUISITES:
                kinds[reference] = kind
            else:
                result.surplus += 1

    def add_css(self, css: str) -> None:
        for reference, is_import in urls_in(css):
            kind = STYLE if is_import else OTHER if _FONT.search(reference) else IMAGE
            self.add(kind, (reference,))

    def add_link(self, tag: str) -> None:
        """Add what a ``link`` element names, given as its source."""
        kind, is_icon, references = _link(tag[:_TAG_LENGTH_MAX])
        self.result.has_icon |= is_icon
        self.add(kind, references)

    def resolved(self, base: str, encoding: Callable[[], str] | None = None) -> Requisites:
        """Return the requisites, joined to ``base``.

        ``encoding`` returns the WHATWG name of the document's encoding; None: UTF-8.
        """
        result, kinds = self.result, self.kinds
        refused: list[str] = []
        oversize: list[str] = []
        if encoding is not None and not "".join(kinds).isascii():
            name = encoding()
            kinds = {
                reference: kind
                for kind in set(kinds.values())
                for reference in encode_queries(
                    [each for each in kinds if kinds[each] == kind], name, oversize
                )
            }
        result.found = normalise_each(kinds, base, refused, oversize)
        # The document itself, by an empty reference or as the part of an SVG in it.
        result.found.pop(base, None)
        result.refused += len(refused)
        result.oversize += len(oversize)
        return result


def requisites_of(
    columns: Sequence[list[str]], base: str, encoding: Callable[[], str]
) -> Requisites:
    """Return the requisites of a page, given what the scan has found for COLUMNS.

    ``encoding`` returns the WHATWG name of the page's encoding. It is asked only if it matters.
    """
    links, styles, images, srcsets, others, attributes = columns
    found = _References()
    for tag in found.first(links):
        found.add_link(tag)
    for css in found.first([*styles, *attributes]):
        found.add_css(css)
    found.add(IMAGE, images)
    for text in found.first(srcsets):
        found.add(IMAGE, _candidates(text))
    found.add(OTHER, others)
    return found.resolved(base, encoding)


def requisites_of_css(css: str, url: str) -> Requisites:
    """Return the requisites of a style sheet."""
    found = _References()
    found.add_css(css)
    return found.resolved(url)


def requisites_of_manifest(body: bytes, url: str) -> Requisites:
    """Return the icons of a web app manifest; none if it is no such JSON, or too long."""
    found = _References()
    try:
        manifest = json.loads(body) if len(body) <= MANIFEST_MAX else {}
    except (ValueError, RecursionError):
        manifest = {}
    match manifest:
        case {"icons": [*icons]}:
            names = (icon.get("src") for icon in icons if isinstance(icon, dict))
            found.add(IMAGE, (name for name in names if isinstance(name, str)))
    return found.resolved(url)


@lru_cache(maxsize=512)
def _link(tag: str) -> tuple[str, bool, tuple[str, ...]]:
    """Return kind, whether it is an icon, and references of a ``link`` element.

    The pages of a site have most of their ``link`` elements in common.
    """
    values: dict[str, str] = {}
    for name, double, single, plain in _ATTRIBUTE.findall(tag, len("<link")):
        values.setdefault(name.lower(), double or single or plain)
    relations = set(values.get("rel", "").lower().split())
    kind = _kind_of(relations, values.get("as", "").lower())
    if kind is None:
        return OTHER, False, ()
    href = unescape(values.get("href", ""))
    if kind != IMAGE:
        return kind, False, (href,)
    candidates = _candidates(unescape(values.get("imagesrcset", "")))
    return kind, not relations.isdisjoint(_ICONS), (*candidates, href)


def _kind_of(relations: set[str], destination: str) -> str | None:
    """Return the kind of a ``link`` by its ``rel`` and ``as``; None if it names no requisite."""
    if "stylesheet" in relations:
        return STYLE
    if not relations.isdisjoint(_ICONS):
        return IMAGE
    if "manifest" in relations:
        return MANIFEST
    if "modulepreload" in relations:
        return OTHER
    if "preload" not in relations or destination == "document":
        return None
    return destination if destination in {IMAGE, STYLE} else OTHER


def _candidates(srcset: str) -> Iterator[str]:
    """Yield the URLs of a ``srcset``."""
    return (found[1] for found in _CANDIDATE.finditer(srcset))
