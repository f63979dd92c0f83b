"""Tell pictures made of characters from code, tables and diagrams.

The W3C's algorithm 2A (www.w3.org/WAI/ER/IG/ert/AsciiArt.htm) calls a block a picture if one
character stands four times in a row. Lines of tables and comments in code do so too. So here a
block is a picture if few of its characters belong to words or numbers. Equal characters in a row
count once: they are lines and areas of a picture, and lines of a table alike.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Characters of a block that are looked at; a picture shows what it is long before.
_READ = 64 * 1024
# A block is a picture if words and numbers have less than this share of its characters.
_SURE = 0.15
# It is one, too, below this share, if less than this share of its lines has any: a picture with
# a caption.
_LIKELY, _LINES = 0.5, 0.3
# No picture has so many kinds of these characters: JSON and regular expressions do.
_CODE, _KINDS = frozenset('{}[]":;=$<>+&%@?!,'), 7
# Nor so many kinds of letters and digits, if they are most of it: moves of chess.
_MOST, _LETTERS = 0.6, 15

# What may be a word or a number: no part of a mixture like "d88b", but a hexadecimal number. A
# letter alone stands between spaces.
_TOKEN = re.compile(
    r"(?<![^\W_])(?:[^\W\d_]{2,}+|\d++|(?:0x)?+[\dA-Fa-f]{4,}+)(?![^\W_])|(?<!\S)[^\W\d_](?!\S)"
)
# Different characters of a hexadecimal number that is no word.
_HEX = 4
_VOWEL = re.compile("[aeiouy]", re.IGNORECASE)
_REPEATED = re.compile(r"(\S)\1++")
_SPACE = re.compile(r"\s++")
# Block elements and Braille patterns: a single line of them is a picture too.
_PIXEL = re.compile("[\u2580-\u259f\u2801-\u28ff]")


def is_art(text: str) -> bool:
    """Return whether a preformatted block is a picture.

    A block of one line is none, unless it is made of block elements or Braille patterns. Neither is
    an empty block.
    """
    text = text[:_READ]
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines or (len(lines) == 1 and not _PIXEL.search(text)):
        return False
    sizes = [sum(map(len, _words(line))) for line in lines]
    shown = _SPACE.sub("", _REPEATED.sub(r"\1", text))
    share = sum(sizes) / len(shown)
    if share >= _LIKELY or _is_dense(shown):
        return False
    return share < _SURE or sum(map(bool, sizes)) < _LINES * len(lines)


def _is_dense(shown: str) -> bool:
    """Return whether the characters of a block, without its spaces, are too many kinds."""
    kinds = set(shown)
    letters = sum(map(str.isalnum, kinds))
    if letters >= _LETTERS and sum(map(str.isalnum, shown)) >= _MOST * len(shown):
        return True
    return len(kinds & _CODE) >= _KINDS


def _words(line: str) -> Iterator[str]:
    """Yield the words and numbers of a line. "ooo", "888" and words of consonants are none."""
    return filter(_is_word, _TOKEN.findall(line))


def _is_word(token: str) -> bool:
    kinds = len(set(token.lower()))
    if kinds == 1:
        return len(token) == 1
    if token.isdigit() or not token.isascii():
        return True
    return _VOWEL.search(token) is not None if token.isalpha() else kinds >= _HEX
