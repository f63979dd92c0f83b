"""Import maps: which URL a name of a module means (HTML, section 8.1.5.2)."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Self

from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from collections.abc import Iterator

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
