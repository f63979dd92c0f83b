"""Find the requisites of a page of HTML, or of an SVG document.

Those of a page are found in what its scan has for COLUMNS. Pictures that scripts load when they
come into sight are among them.

An SVG document is one in an ``object``, ``embed`` or frame. As a picture, an SVG loads nothing. As
a document it loads what a page does, and style sheets of processing instructions. The XML is read
up to its first error, as browsers do.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import unescape
from typing import TYPE_CHECKING
from xml.parsers import expat

from krowlspider.internals.frostwork import Plan
from krowlspider.urls.canonical import URL_MAX, normalise
from krowlspider.urls.page.headers import bounded
from krowlspider.urls.page.requisites.found import ImportMap, References, Requisites
from krowlspider.urls.page.requisites.modules import add_imports
from krowlspider.urls.page.requisites.requisite import EMBED, IMAGE, MANIFEST, MODULE, OTHER, STYLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
_START_TAG = re.compile(r"""<(?:[^>"']++|"[^"]*+"?|'[^']*+'?)*+>?""")


def start_tag(source: str) -> str:
    """Return the start tag of an element, given as its source."""
    found = _START_TAG.match(source)
    return found[0] if found else ""


def attributes_of(tag: str) -> dict[str, str]:
    """Return the attributes of a tag, given as its source, with the name of the tag itself."""
    values: dict[str, str] = {}
    for name, double, single, plain in _ATTRIBUTE.findall(tag, 1):
        values.setdefault(name.lower(), unescape(double or single or plain))
    return values


def candidates_in(srcset: str) -> Iterator[str]:
    """Yield the URLs of a ``srcset``."""
    return (found[1] for found in _CANDIDATE.finditer(srcset))


# Where plugins for lazy loading keep the URL of a picture: lazysizes, lozad, jQuery Lazy Load,
# Slick, Flickity, Swiper, unveil, echo.js; WP Rocket, Jetpack, Avada; Cloudflare, Zhihu. Netscape
# had ``lowsrc``.
_LAZY = frozenset(
    {
        *("data-src", "data-original", "data-original-src", "data-lazy", "data-lazy-src"),
        *("data-lazyload", "data-lazyload-src", "data-lazy-original", "data-ll-src"),
        *("data-flickity-lazyload", "data-flickity-lazyload-src", "data-src-retina", "data-echo"),
        *("data-orig-src", "data-defer-src", "data-hi-res-src", "data-image-src", "data-img-src"),
        *("data-cfsrc", "data-actualsrc", "data-lowsrc", "data-poster", "lowsrc"),
    }
)
_LAZY_SETS = frozenset(
    {
        *("data-srcset", "data-lazy-srcset", "data-original-set", "data-lazyload-srcset"),
        *("data-flickity-lazyload-srcset", "data-orig-srcset", "data-cfsrcset"),
    }
)
# A value that is a URL, and no number, word or colour.
_PLACE = re.compile(
    r"(?![{\[])[^\n]*?(?:/|\.(?:png|jpe?g|gif|webp|avif|svg|bmp)(?:[?#]|\Z))", re.IGNORECASE
)
_CSS = re.compile(r"(?:url|image-set)\(", re.IGNORECASE)


def add_lazy(found: References, pictures: list[str], backgrounds: list[str]) -> None:
    """Add what ``img`` tags, given as their sources, and lazy backgrounds name."""
    tags = [tag for tag in pictures if "data-" in (lower := tag.lower()) or "lowsrc" in lower]
    for tag in found.first(tags):
        for name, value in attributes_of(tag).items():
            if name in _LAZY_SETS:
                found.add(IMAGE, candidates_in(value))
            elif name == "data-src" or (name in _LAZY and _PLACE.match(value)):
                found.add(IMAGE, (value,))
    for value in found.first(backgrounds):
        if _CSS.search(value):
            found.add_css(value)
        elif _PLACE.match(value):
            found.add(IMAGE, (value,))


# Characters of a ``link`` or ``script`` tag that are read.
_TAG_LENGTH_MAX = 8192
# Characters of the modules in a page itself that are read: that takes a step for each token.
_INLINE_MAX = 64 * 1024
# Documents in the ``srcdoc`` of one another.
_SRCDOC_LEVELS = 3

# Selectors of the reading plan. Each one between commas costs time per element of a page.
# The source of an element is read of those alone in which the scan knows no other elements, so not
# of ``source`` and ``embed``: all sources together would be as long as the page by its square.
COLUMNS = (
    "link",
    "style::text",
    (
        "img::attr(src), video::attr(poster), :is(image, use, feimage)::attr(href),"
        " :is(image, use, feimage)::attr(xlink:href), [background]::attr(background)"
    ),
    (
        "[srcset]::attr(srcset), source::attr(data-srcset), source::attr(data-lazy-srcset),"
        " [data-bgset]::attr(data-bgset)"
    ),
    "[src]:not(iframe):not(frame):not(img)::attr(src), :is(source, video)::attr(data-src)",
    '[style*="("]::attr(style)',
    "img",
    (
        "[data-bg]::attr(data-bg), [data-background]::attr(data-background),"
        " [data-background-image]::attr(data-background-image)"
    ),
    "object::attr(data), embed::attr(src)",
    ":is(frame, iframe)",
    "script[type=module i], script[type=importmap i]",
)

_ICONS = frozenset({"icon", "apple-touch-icon", "apple-touch-icon-precomposed", "mask-icon"})
# What a frame shows without being a page.
_NO_PAGE = re.compile(
    r"\.(?:png|jpe?g|jfif|gif|webp|avif|svgz?|bmp|ico|apng|pdf|mp[34]|webm|og[gv]|wav)(?:[?#]|\Z)",
    re.IGNORECASE,
)


def requisites_of(
    columns: Sequence[list[str]], base: str, encoding: Callable[[], str], level: int = 0
) -> Requisites:
    """Return the requisites of a page, given what the scan has found for COLUMNS.

    ``encoding`` returns the WHATWG name of the page's encoding. It is asked only if it matters.
    ``level`` is the number of pages around this one, which is a ``srcdoc``.
    """
    links, styles, images, srcsets, others, attributes, pictures, *rare = columns
    backgrounds, embeds, frames, scripts = rare
    found = References()
    # What is read for further requisites comes first.
    if scripts:
        _add_scripts(found, scripts, base)
    found.add(EMBED, embeds)
    for source in found.first(frames):
        _add_frame(found, source, base, level)
    for tag in found.first(links):
        kind, is_icon, references = _link(tag[:_TAG_LENGTH_MAX])
        found.result.has_icon |= is_icon
        found.add(kind, references)
    for css in found.first([*styles, *attributes]):
        found.add_css(css)
    found.add(IMAGE, images)
    for text in found.first(srcsets):
        # The bgset of lazysizes has a bar between the sets for different windows.
        found.add(IMAGE, candidates_in(text.replace(" | ", ", ")))
    found.add(OTHER, others)
    add_lazy(found, pictures, backgrounds)
    return found.resolved(base, encoding)


def add_link(found: References, attributes: Mapping[str, str]) -> None:
    """Add what a ``link`` element names, given its attributes."""
    kind, is_icon, references = _link_of(attributes)
    found.result.has_icon |= is_icon
    found.add(kind, references)


@lru_cache(maxsize=512)
def _link(tag: str) -> tuple[str, bool, tuple[str, ...]]:
    """Return as `_link_of` does. The pages of a site have most ``link`` elements in common."""
    return _link_of(attributes_of(tag))


def _link_of(attributes: Mapping[str, str]) -> tuple[str, bool, tuple[str, ...]]:
    """Return kind, whether it is an icon, and references of a ``link`` element."""
    relations = set(attributes.get("rel", "").lower().split())
    kind = _kind_of(relations, attributes.get("as", "").lower())
    if kind is None:
        return OTHER, False, ()
    href = attributes.get("href", "")
    if kind != IMAGE:
        return kind, False, (href,)
    candidates = candidates_in(attributes.get("imagesrcset", ""))
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
        return MODULE if destination in {"", "script"} else OTHER
    if "preload" not in relations or destination == "document":
        return None
    return destination if destination in {IMAGE, STYLE} else OTHER


def _add_scripts(found: References, sources: list[str], base: str) -> None:
    """Add the modules of a page: those in files, and the imports of those in the page itself."""
    maps: list[str] = []
    inline: list[str] = []
    for source in found.first(sources):
        tag = start_tag(source)
        attributes = attributes_of(tag[:_TAG_LENGTH_MAX])
        if attributes.get("type", "").strip().lower() == "importmap":
            maps.append(_content(source, len(tag)))
        elif "src" in attributes:
            found.add(MODULE, (attributes["src"],))
        else:
            inline.append(_content(source, len(tag)))
    names = found.result.import_map = ImportMap.read(maps, base) if maps else None
    room = _INLINE_MAX
    for script in inline:
        if room > 0:
            add_imports(found, script[:room], base, names)
        else:
            found.result.surplus += 1
        room -= len(script)


def _add_frame(found: References, source: str, base: str, level: int) -> None:
    """Add what a frame shows, unless it is a page: that is a link."""
    attributes = attributes_of(start_tag(source))
    if _NO_PAGE.search(reference := attributes.get("src", "")):
        found.add(EMBED, (reference,))
    if (document := attributes.get("srcdoc")) is not None:
        if level == _SRCDOC_LEVELS:
            found.result.nested += 1
        else:
            found.merge(_of_srcdoc(document, base, level + 1))


def _content(source: str, start: int) -> str:
    end = source.lower().rfind("</script")
    return source[start : end if end >= start else len(source)]


@lru_cache(maxsize=1)
def _srcdoc_plan() -> Plan:
    return Plan([*COLUMNS, "base[href]::attr(href)"], [])


def _of_srcdoc(document: str, outer: str, level: int) -> Requisites:
    html = bounded(document.encode("utf-8", "replace"))
    *columns, bases = _srcdoc_plan().extract(html, "utf-8")
    base = normalise(bases[0], outer) if bases else None
    if base is None or len(base) > URL_MAX:
        base = outer
    return requisites_of(columns, base, lambda: "UTF-8", level)


# Bytes of a document that are read.
SVG_MAX = 2 * 1024 * 1024
# Bytes parsed at a time, and of one tag or comment: an unfinished one is parsed again each time.
_STEP = 64 * 1024
_TOKEN_MAX = 256 * 1024
# Characters of an entity. Editors define short ones, for the names of namespaces.
_ENTITY_MAX = 200
_CSS_MAX = 256 * 1024

_SVG, _XHTML = "http://www.w3.org/2000/svg ", "http://www.w3.org/1999/xhtml "
_XLINK = "http://www.w3.org/1999/xlink "
_PICTURES = frozenset({"image", "use", "feImage"})
# Attributes that may have a url(), besides ``style``.
_PAINTED = frozenset(
    {
        *("style", "fill", "stroke", "filter", "mask", "clip-path", "cursor"),
        *("marker-start", "marker-mid", "marker-end"),
    }
)
_PSEUDO_ATTRIBUTE = re.compile(r"""([a-z]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")


class _Over(Exception):
    """No more of the document is read."""


def requisites_of_svg(body: bytes, url: str) -> Requisites:
    """Return the requisites of an SVG, or other XML; no bytes raise an error."""
    reader = _Reader()
    reader.read(body[:SVG_MAX])
    return reader.found.resolved(url)


class _Reader:
    def __init__(self) -> None:
        self.found = References()
        self._has_root = False
        self._css: list[str] | None = None
        self._room = _CSS_MAX
        self._parser = parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.EntityDeclHandler = self._entity
        parser.ProcessingInstructionHandler = self._instruction
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end

    def read(self, body: bytes) -> None:
        parser = self._parser
        try:
            for start in range(0, len(body), _STEP):
                step = body[start : start + _STEP]
                parser.Parse(step, False)
                if start + len(step) - parser.CurrentByteIndex > _TOKEN_MAX:
                    return
        except (expat.ExpatError, LookupError, ValueError, _Over):
            # LookupError, ValueError: Python does not know the encoding, or has no table for it.
            return

    def _entity(self, name: str, is_parameter: int, value: str | None, *_: object) -> None:
        if is_parameter or value is None or len(value) > _ENTITY_MAX or "&" in value:
            raise _Over

    def _instruction(self, target: str, data: str) -> None:
        if target != "xml-stylesheet" or self._has_root:
            return
        values = {
            name: double or single for name, double, single in _PSEUDO_ATTRIBUTE.findall(data)
        }
        kind = STYLE if values.get("type", "text/css") == "text/css" else OTHER
        if href := values.get("href"):
            self.found.add(kind, (href,))

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._has_root = True
        namespace, blank, local = name.rpartition(" ")
        for each, value in attributes.items():
            if each in _PAINTED and "(" in value:
                self._add_css(value)
        if namespace + blank == _SVG:
            self._svg(local, attributes)
        elif namespace + blank == _XHTML:
            self._xhtml(local, attributes)
        if local == "style" and self._css is None:
            self._css = []
            self._parser.CharacterDataHandler = self._css.append

    def _end(self, name: str) -> None:
        if self._css is not None and name.endswith(" style"):
            css, self._css = "".join(self._css), None
            self._parser.CharacterDataHandler = None
            self._add_css(css)

    def _svg(self, name: str, attributes: dict[str, str]) -> None:
        href = attributes.get("href", attributes.get(f"{_XLINK}href"))
        if href is None:
            return
        if name in _PICTURES:
            self.found.add(IMAGE, (href,))
        elif name == "script":
            self.found.add(MODULE if attributes.get("type") == "module" else OTHER, (href,))

    def _xhtml(self, name: str, attributes: dict[str, str]) -> None:
        if name == "link":
            add_link(self.found, attributes)
        elif name not in {"iframe", "frame"}:
            kind = IMAGE if name == "img" else OTHER
            references = (attributes.get(each) for each in ("src", "poster", "data"))
            self.found.add(kind, (each for each in references if each is not None))
            self.found.add(IMAGE, candidates_in(attributes.get("srcset", "")))

    def _add_css(self, css: str) -> None:
        if self._room <= 0:
            self.found.result.surplus += 1
        else:
            self.found.add_css(css[: self._room])
            self._room -= len(css)
