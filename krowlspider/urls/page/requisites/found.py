"""The requisites of one document, of CSS and of a manifest, and import maps.

In CSS they are those of ``url()``, ``@import`` and ``image-set()`` (CSS Syntax Module Level 3).
Comments and strings are honoured. The time is linear in the length of the text.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct, field

from krowlspider.urls.canonical import normalise, normalise_each
from krowlspider.urls.encoding import codec_for, decode, encoding_named, mark_of
from krowlspider.urls.page.headers import encode_queries
from krowlspider.urls.page.requisites.requisite import IMAGE, NESTED, OTHER, STYLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Characters of the import maps of a page that are read, and names in a table of them.
MAP_MAX = 64 * 1024
_NAMES_MAX = 1000
# Modules whose map is kept until they are read, and the characters of these maps together.
_KEPT_MAX = 4096
_KEPT_CHARS_MAX = 4 * 1024 * 1024

# Characters of a name, or URL, in which a prefix is looked for.
_PREFIX_MAX = 2048

_URL_LIKE = re.compile(r"\.{0,2}/|[A-Za-z][A-Za-z0-9+.-]*:")


def absolute(specifier: str, url: str) -> str | None:
    """Return the URL of a module by its relative or absolute URL; None for any other name."""
    return normalise(specifier, url) if _URL_LIKE.match(specifier) else None


class ImportMap:
    """The import maps of one page: names of modules, and those within a part of the site."""

    __slots__ = ("_imports", "_scopes", "size")

    def __init__(self, imports: dict[str, str | None], scopes: dict[str, dict[str, str | None]]):
        self._imports = imports
        self._scopes = scopes
        # In characters.
        self.size = sum(
            len(name) + len(url or "")
            for table in (imports, *scopes.values())
            for name, url in table.items()
        )

    @classmethod
    def read(cls, texts: list[str], base: str) -> Self | None:
        """Return the map of all ``importmap`` scripts of a page; None if none is valid JSON.

        ``base`` is the base URL of the page. Of a name that is mapped twice, the first counts.
        """
        imports: dict[str, str | None] = {}
        scopes: dict[str, dict[str, str | None]] = {}
        is_valid, room = False, MAP_MAX
        for text in texts:
            room -= len(text)
            parsed = _parsed(text) if room >= 0 else None
            if parsed is None:
                continue
            is_valid = True
            imports = _names(parsed.get("imports"), base) | imports
            parts = parsed.get("scopes")
            for prefix, names in parts.items() if isinstance(parts, dict) else ():
                if (url := normalise(prefix, base)) is not None and len(scopes) < _NAMES_MAX:
                    scopes[url] = _names(names, base) | scopes.get(url, {})
        return cls(imports, scopes) if is_valid else None

    def resolve(self, specifier: str, url: str) -> str | None:
        """Return the URL of the module that a module or page at ``url`` names; None if there is
        none."""
        asked = absolute(specifier, url)
        name = asked or specifier
        scopes = [self._scopes[each] for each in _prefixes(url) if each in self._scopes]
        for table in (*scopes, self._imports):
            for prefix in _prefixes(name):
                if prefix in table:
                    return _below(table[prefix], name[len(prefix) :])
        return asked


class KeptMaps:
    """Import maps by the modules that are not read yet; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._maps: OrderedDict[str, ImportMap] = OrderedDict()
        self._chars = 0

    def keep(self, url: str, import_map: ImportMap) -> None:
        self.take(url)
        self._maps[url] = import_map
        self._chars += import_map.size
        while len(self._maps) > _KEPT_MAX or self._chars > _KEPT_CHARS_MAX:
            self._chars -= self._maps.popitem(last=False)[1].size

    def take(self, url: str) -> ImportMap | None:
        """Return the map of a module, and forget it."""
        found = self._maps.pop(url, None)
        if found is not None:
            self._chars -= found.size
        return found


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _names(table: object, base: str) -> dict[str, str | None]:
    """Return the URL of each name; None for a name that means no module."""
    found: dict[str, str | None] = {}
    for name, address in list(table.items())[:_NAMES_MAX] if isinstance(table, dict) else ():
        url = absolute(address, base) if isinstance(address, str) else None
        if name.endswith("/") and not (url or "").endswith("/"):
            url = None
        if name:
            found[absolute(name, base) or name] = url
    return found


def _prefixes(text: str) -> Iterator[str]:
    """Yield a text, and then its beginnings that end with "/", the longest first."""
    yield text
    at = text.rfind("/", 0, _PREFIX_MAX)
    while at >= 0:
        yield text[: at + 1]
        at = text.rfind("/", 0, at)


def _below(url: str | None, rest: str) -> str | None:
    """Return the URL of what is mapped by a prefix that means ``url``; it must not leave it."""
    joined = normalise(rest, url) if url and rest else url
    return joined if joined and url and joined.startswith(url) else None


# Bytes of a style sheet that are read. Larger ones hold fonts and pictures as data: URLs.
CSS_MAX = 2 * 1024 * 1024

# The first character class makes the search skip all other characters quickly. A string without its
# end stops at the end of the line. What is no valid url() is skipped to its end.
_DOUBLE, _SINGLE = r'"((?:[^"\\\n]++|\\.)*+)(?:"|\Z)', r"'((?:[^'\\\n]++|\\.)*+)(?:'|\Z)"
_PLAIN = r"""((?:[^\s"'()\\]++|\\[0-9a-fA-F]{1,6}\s?+|\\.)*+)\s*+(?:\)|\Z)"""
_URL = rf"[uU][rR][lL]\(\s*+(?:{_DOUBLE}|{_SINGLE}|{_PLAIN}|(?:[^)\\]++|\\.)*+\)?+)"
_COMMENT = r"/\*.*?(?:\*/|\Z)"
_STRINGS = r""""(?:[^"\\\n]++|\\.)*+"?+|'(?:[^'\\\n]++|\\.)*+'?+"""
_WITHIN = rf"""[^()"'\\]++|{_STRINGS}|\\."""
_TOKEN = re.compile(
    rf"""[@uU"'/\\(](?:
        (?<=/)\*.*?(?:\*/|\Z)
      | (?<=[uU]){_URL.removeprefix("[uU]")}
      | (?<=@)(?i:import)\b(?:\s++|{_COMMENT})*+(?:{_DOUBLE}|{_SINGLE}|{_URL})
      | (?<=@)(?i:namespace)\b[^;]*+
      | (?<=\()(?<=(?i:image-set)\()((?:{_WITHIN}|\((?:{_WITHIN}|\((?:{_WITHIN})*+\)?+)*+\)?+)*+)
      | (?<=")(?:[^"\\\n]++|\\.)*+"?
      | (?<=')(?:[^'\\\n]++|\\.)*+'?
      | (?<=\\).
    )""",
    re.VERBOSE | re.DOTALL,
)
# The groups of `_TOKEN` behind these are of ``@import``, and of the arguments of ``image-set()``.
_IMPORTS, _SETS = 3, 8
# In ``image-set()`` a string is a URL too, but not in ``type()``.
_SET_TOKEN = re.compile(
    rf"{_URL}|{_COMMENT}|[tT][yY][pP][eE]\([^)]*+\)?+|{_DOUBLE}|{_SINGLE}|\\.", re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:([0-9a-f]{1,6})\s?|(\n)|(.))", re.IGNORECASE | re.DOTALL)
_CHARSET = re.compile(rb'@charset "([A-Za-z0-9_.:-]{1,40})";')


def urls_in(css: str) -> Iterator[tuple[str, bool]]:
    """Yield (reference, whether ``@import`` names it) for each URL of a style sheet, in order."""
    for found in _TOKEN.finditer(css):
        if at := found.lastindex:
            if at > _SETS:
                for part in _SET_TOKEN.finditer(found[at]):
                    if part.lastindex and (text := part[part.lastindex]):
                        yield _unescaped(text), False
            elif text := found[at]:
                yield _unescaped(text), at > _IMPORTS


def decode_css(body: bytes, charset: str | None) -> str:
    """Return the text of a style sheet, up to CSS_MAX bytes; no bytes raise an error.

    ``charset`` is the WHATWG name of the encoding by the HTTP header; it comes after a byte order
    mark, and before ``@charset``. Otherwise it is UTF-8.
    """
    body = body[:CSS_MAX]
    mark, marked = mark_of(body)
    named = _CHARSET.match(body)
    declared = encoding_named(named[1].decode("ascii")) if named else None
    # Who can read this rule does not read UTF-16.
    if declared is None or declared.startswith("UTF-16"):
        declared = "UTF-8"
    codec = codec_for(marked or charset or declared)
    return decode(body[len(mark) :], codec, is_exact=False)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_unescape, text) if "\\" in text else text


def _unescape(found: re.Match[str]) -> str:
    if code := found[1]:
        value = int(code, 16)
        return chr(value) if 0 < value < 0x110000 and not 0xD800 <= value < 0xE000 else "\ufffd"
    return found[3] or ""


# Requisites taken from one document.
MAX_REQUISITES = 1000
# Bytes of a web app manifest that are read.
MANIFEST_MAX = 256 * 1024
# Characters of each kind of text in a page that are read: CSS, scripts, ``srcset`` ...
_TEXT_MAX = 256 * 1024

_FONT = re.compile(r"\.(?:woff2?|ttf|otf|eot)(?:[?#]|\Z)", re.IGNORECASE)
# Such URLs may be long, so they are not parsed.
_DATA = frozenset({"data:", "DATA:"})


class Requisites(Struct, eq=False):
    """The requisites of one document.

    ``found`` has the kind of each normalised URL. ``refused`` counts references that are no http(s)
    URL, ``oversize`` those too long to be parsed, ``surplus`` those after the first MAX_REQUISITES,
    ``nested`` documents within the page that are too deep, and ``unmapped`` the names of modules
    that no import map maps. ``has_icon`` is true if the document names an icon. ``import_map`` is
    that of the modules in ``found``; None if the page has none.
    """

    found: dict[str, str] = field(default_factory=dict)
    refused: int = 0
    oversize: int = 0
    surplus: int = 0
    nested: int = 0
    unmapped: int = 0
    has_icon: bool = False
    import_map: ImportMap | None = None


class References:
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
        """Add references; the kind of one that is known stays."""
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

    def merge(self, inner: Requisites) -> None:
        """Add the requisites of a document within this one."""
        for url, kind in inner.found.items():
            self.add(kind, (url,))
        result = self.result
        result.refused += inner.refused
        result.oversize += inner.oversize
        result.surplus += inner.surplus
        result.nested += inner.nested
        result.unmapped += inner.unmapped

    def resolved(self, base: str, encoding: Callable[[], str] | None = None) -> Requisites:
        """Return the requisites, joined to ``base``.

        ``encoding`` returns the WHATWG name of the document's encoding; None: UTF-8. Of two
        spellings of a URL, the kind counts that is read for further requisites.
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
        if len(result.found) + len(refused) + len(oversize) < len(kinds):
            nested = {each: kind for each, kind in kinds.items() if kind in NESTED}
            result.found |= normalise_each(nested, base)
        # The document itself, by an empty reference or as the part of an SVG in it.
        result.found.pop(base, None)
        result.refused += len(refused)
        result.oversize += len(oversize)
        return result


def requisites_of_css(css: str, url: str) -> Requisites:
    """Return the requisites of a style sheet."""
    found = References()
    found.add_css(css)
    return found.resolved(url)


def requisites_of_manifest(body: bytes, url: str) -> Requisites:
    """Return the icons of a web app manifest; none if it is no such JSON, or too long."""
    found = References()
    try:
        manifest = json.loads(body) if len(body) <= MANIFEST_MAX else {}
    except (ValueError, RecursionError):
        manifest = {}
    match manifest:
        case {"icons": [*icons]}:
            names = (icon.get("src") for icon in icons if isinstance(icon, dict))
            found.add(IMAGE, (name for name in names if isinstance(name, str)))
    return found.resolved(url)
