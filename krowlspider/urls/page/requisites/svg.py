"""Find the requisites of an SVG document in an ``object``, ``embed`` or frame.

As a picture, an SVG loads nothing. As a document it loads what a page does, and style sheets of
processing instructions. The XML is read up to its first error, as browsers do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.parsers import expat

from krowlspider.urls.page.requisites.elements import add_link, candidates_in
from krowlspider.urls.page.requisites.found import References
from krowlspider.urls.page.requisites.requisite import IMAGE, MODULE, OTHER, STYLE

if TYPE_CHECKING:
    from krowlspider.urls.page.requisites.found import Requisites

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
