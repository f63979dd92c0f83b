"""Read gemtext: the links, headings and text of a page (text/gemini).

The format is that of the gemtext specification (geminiprotocol.net/docs/gemtext-specification.gmi).
The type of a line is in its first characters, so any text is gemtext and none is an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from krowlspider.gemini.ascii_art import is_art

if TYPE_CHECKING:
    from collections.abc import Iterator

# Lines of a page that are read: more than any book has. Further ones are left out.
LINES_MAX = 200_000
# Links, headings and preformatted blocks taken from one page: as of a page of HTML.
LINKS_MAX = 10_000
HEADINGS_MAX = 1_000
BLOCKS_MAX = 1_000
# Characters of a reference: `krowlspider.urls.canonical.REFERENCE_MAX`. Longer ones are no links.
REFERENCE_MAX = 16 * 1024
# Characters that are kept of the text of a link, and of a heading.
LABEL_MAX = 512

_FENCE = "```"
# Escape sequences of terminals: colours of pictures and menus.
_ESCAPES = re.compile(r"\x1b\[[0-?]*+[ -/]*+[@-~]")
_SPOKEN = re.compile(r"[^\W_]")
# The least number of equal characters at both ends of a line that decorate it.
_ORNAMENT = 3


class LinkLine(NamedTuple):
    """A link: its reference as written, its text or "", and its line, counted from 1."""

    url_reference: str
    text: str
    place: int


class Block(NamedTuple):
    """A preformatted block: its alternative text, and its lines."""

    alt: str
    text: str


class Gemtext(Struct, eq=False):
    """The content of a page of gemtext that concerns a crawler and an index.

    ``url`` is the URL of the page. ``links`` are in document order, with repeats. ``title`` is the
    first heading of level 1, else the first heading, else "". ``text`` is what a reader reads, one
    line for each: without ornaments, and without preformatted blocks that are pictures or stand in
    front of everything else, if there is anything else. ``preformatted`` are all preformatted
    blocks.

    ``surplus`` counts links after the first LINKS_MAX and those whose reference is too long.
    ``truncated`` is True if the page has more than LINES_MAX lines.
    """

    url: str
    links: list[LinkLine] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    title: str = ""
    text: str = ""
    preformatted: list[Block] = field(default_factory=list)
    surplus: int = 0
    truncated: bool = False


def read(text: str, base: str) -> Gemtext:
    """Read a page of gemtext; ``base`` is its URL. No text raises an error."""
    if "\0" in text:
        # As in HTML: databases take no text with it.
        text = text.replace("\0", "\ufffd")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    lines = text.removeprefix("\ufeff").split("\n", LINES_MAX)
    document = Gemtext(base)
    if len(lines) > LINES_MAX:
        document.truncated = True
        lines.pop()
    _Reader(document).read(lines)
    return document


class _Reader:
    """Reads the lines of one page into its document."""

    def __init__(self, document: Gemtext):
        self._document = document
        self._title = ""
        # What is read of the page, with the preformatted blocks in their places.
        self._parts: list[str | Block] = []
        # The leading blocks, which are among the parts too.
        self._leading = 0

    def read(self, lines: list[str]) -> None:
        document = self._document
        numbered = enumerate(lines, 1)
        for number, ended in numbered:
            line = ended.removesuffix("\r")
            start = line[:1]
            if start == "=" and line.startswith("=>"):
                self._link(line[2:], number)
            elif start == "#":
                self._heading(line)
            elif start == "`" and line.startswith(_FENCE):
                self._block(line[len(_FENCE) :].strip(), numbered)
            elif start == "*" and line.startswith("* "):
                self._say(line[2:].strip())
            elif start == ">":
                self._say(line[1:].strip())
            elif line:
                self._say(line.strip())
        document.title = self._title or next(iter(document.headings), "")
        document.text = "\n".join(self._spoken())

    def _say(self, words: str) -> None:
        if plain := without_ornament(words):
            self._parts.append(plain)

    def _link(self, rest: str, number: int) -> None:
        reference, _, label = rest.strip().replace("\t", " ").partition(" ")
        if not reference:
            return
        links = self._document.links
        if len(links) < LINKS_MAX and len(reference) <= REFERENCE_MAX:
            label = label.strip()
            links.append(LinkLine(reference, label[:LABEL_MAX], number))
            self._say(label)
        else:
            self._document.surplus += 1

    def _heading(self, line: str) -> None:
        # Authors who are used to Markdown write more than three marks.
        words = without_ornament(line.lstrip("#").strip())
        if not words:
            return
        self._parts.append(words)
        headings = self._document.headings
        if len(headings) < HEADINGS_MAX:
            headings.append(words[:LABEL_MAX])
        if not self._title and not line.startswith("##"):
            self._title = words[:LABEL_MAX]

    def _block(self, alt: str, numbered: Iterator[tuple[int, str]]) -> None:
        inside = []
        for _, ended in numbered:
            if ended.startswith(_FENCE):
                break
            inside.append(ended.removesuffix("\r"))
        block = Block(alt[:LABEL_MAX], "\n".join(inside))
        blocks = self._document.preformatted
        if len(blocks) < BLOCKS_MAX:
            blocks.append(block)
            if len(self._parts) == self._leading:
                self._leading += 1
            self._parts.append(block)

    def _spoken(self) -> Iterator[str]:
        """Yield the text of the page, part by part."""
        # A page may consist of preformatted blocks alone, such as a manual page.
        leading = self._leading if self._leading < len(self._parts) else 0
        for number, part in enumerate(self._parts):
            if isinstance(part, str):
                yield part
            elif number >= leading:
                if part.alt:
                    yield part.alt
                if not is_art(part.text):
                    yield part.text


def without_ornament(line: str) -> str:
    """Return a line without the characters that decorate it; "" if no letter or digit is left.

    Decoration is a run of three or more equal characters at both ends: ``---- next up ----``.
    """
    first, last = line[:1], line[-1:]
    if first.isalnum() or not line:
        return line
    if not _SPOKEN.search(line):
        return ""
    if line.startswith(first * _ORNAMENT) and line.endswith(last * _ORNAMENT):
        return line.lstrip(first).rstrip(last).strip()
    return line
