"""Tell pictures made of characters from code, tables and diagrams with words.

The W3C's algorithm 2A (www.w3.org/WAI/ER/IG/ert/AsciiArt.htm) calls a block a picture if one
character stands four times in a row. Rules of tables and comments in code do so too. So here a
block is a picture if few of its characters belong to words, repeated ones counted once.
"""

from __future__ import annotations

import re

# Characters of a block that are looked at; pictures are smaller.
_READ = 64 * 1024
# A block is a picture if less than this share of its characters belongs to words.
_SHARE = 0.4
# Words that a reader may search for: letters of two kinds at least, or a number.
_WORD = re.compile(r"[^\W\d_]{2,}+|\d++")
_REPEATED = re.compile(r"(\S)\1++")
_SPACE = re.compile(r"\s++")
# Block elements and Braille patterns, which make pictures and nothing else.
_PIXELS = re.compile("[\u2580-\u259f\u2801-\u28ff]")


def is_art(text: str) -> bool:
    """Return whether a preformatted block is a picture, so that its characters are no words."""
    shown = _SPACE.sub("", _REPEATED.sub(r"\1", text[:_READ]))
    if not shown:
        return False
    words = sum(len(word) for word in _WORD.findall(_REPEATED.sub(r"\1", text[:_READ])))
    return words < _SHARE * len(shown)
