"""Find the locations in a sitemap whose XML is not well-formed, from its first error on."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Protocol

from krowlspider.urls.length import REFERENCE_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

# Levels of nested elements. All forms and their extensions use at most six, and expat keeps each
# open element in memory.
NESTING_MAX = 32
# Bytes of one tag or comment: an unfinished one is scanned again at each step.
TOKEN_MAX = 256 * 1024
# Characters of a location that are read: one more than are parsed.
PLACE_MAX = REFERENCE_MAX + 1
# Locations of URLs as (parent, element); the parent excludes the ``loc`` of an image.
PAGE = frozenset({("url", "loc"), ("item", "link")})
CHILD = ("sitemap", "loc")
ENTRY_LINK = ("entry", "link")

_ENTRIES = frozenset({"url", "sitemap", "item", "entry"})
_TAG = re.compile(rb"<(/?)([^\s<>/!?][^<>]*)>")
_REFERENCE = re.compile(r"&(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")
_ATTRIBUTE = re.compile(r"""\s(href|rel)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_CDATA = "<![CDATA["


class _Add(Protocol):
    def __call__(self, place: str, *, is_child: bool = False) -> None: ...


class LocationScan:
    """Reads tags in any order, and calls ``add`` with each location as `Sitemap.add` takes it.

    ``opened`` are the names of the elements that are open at the start. ``tags`` counts the tags
    read. A bare ``&`` is taken as it is, and entries end where the next one begins.
    """

    def __init__(self, add: _Add, opened: Iterable[str], encoding: str):
        self._add = add
        self._opened = list(opened)
        self._encoding = encoding
        # The bytes that wait for the next step: the text of a location, or an unfinished tag.
        self._rest = b""
        # Whether the location that is being read is one of a sitemap; None: none is being read.
        self._is_child: bool | None = None
        self.tags = 0

    def feed(self, piece: bytes) -> None:
        data, read = self._rest + piece, 0
        for tag in _TAG.finditer(data):
            if self._is_child is not None:
                self._add(self._text(data[read : tag.start()]), is_child=self._is_child)
                self._is_child = None
            read = tag.end()
            self.tags += 1
            self._tag(self._decoded(tag[2]), closes=bool(tag[1]))
        if self._is_child is None:
            unfinished = data.rfind(b"<", read)
            read = len(data) if unfinished < 0 else unfinished
        self._rest = data[read:]
        if len(self._rest) > TOKEN_MAX:
            self._rest, self._is_child = b"", None

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
            return
        if name in _ENTRIES:
            opened.clear()
        elif opened:
            where = (opened[-1], name)
            if where in PAGE or where == CHILD:
                self._is_child = where == CHILD
            elif where == ENTRY_LINK:
                found = {key: _unescaped(one or two) for key, one, two in _ATTRIBUTE.findall(text)}
                if found.get("rel", "alternate") == "alternate":
                    self._add(found.get("href", ""))
        if not text.endswith("/"):
            opened.append(name)
            del opened[:-NESTING_MAX]


def _unescaped(text: str) -> str:
    """Return a text with its references replaced, if they are of XML and have a semicolon."""
    return _REFERENCE.sub(lambda found: unescape(found[0]), text)
