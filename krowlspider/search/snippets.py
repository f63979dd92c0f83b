"""The part of a text that shows why a page was found."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# Characters of a snippet, and of a text in which one is looked for.
LENGTH = 280
TEXT_MAX = 200_000
# Places of words that are looked at.
_FOUND_MAX = 400
# Characters that a snippet begins before its first word.
_BEFORE = 50
_ELLIPSIS = "…"
_SPACE = re.compile(r"\s+")
# Characters that turn the direction of what follows, or are not seen.
_CONTROL = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


class Piece(NamedTuple):
    """A piece of a snippet, and whether it is a word of the query."""

    text: str
    is_marked: bool = False


def plain(text: str) -> str:
    """Return a text in one line, without characters that are not seen."""
    return _SPACE.sub(" ", _CONTROL.sub("", text)).strip()


def marked(text: str, begins: Sequence[str], is_word: Callable[[str], bool]) -> list[Piece]:
    """Return the pieces of a whole short text, such as a title."""
    text = plain(text)
    return _cut(text, 0, len(text), _places(text, begins, is_word))


def without_title(text: str, title: str) -> str:
    """Return a text that begins with its title without it, as it is shown above the snippet."""
    rest = text.lstrip().removeprefix(title)
    return text if rest[:1].isalnum() or not rest.strip() else rest


def snippet(
    text: str, begins: Sequence[str], is_word: Callable[[str], bool], length: int = LENGTH
) -> list[Piece]:
    """Return the part of a text with the most different words of a query.

    ``begins`` are the beginnings of its words in lower case, ``is_word`` says of a word that begins
    so whether it is one of them.
    """
    text = plain(text[:TEXT_MAX])
    if len(text) <= length:
        return _cut(text, 0, len(text), _places(text, begins, is_word))
    places = _places(text, begins, is_word)
    begin = _best(text, places, length)
    end = _word_end(text, begin + length)
    pieces = _cut(text, begin, end, places)
    if begin:
        pieces.insert(0, Piece(_ELLIPSIS))
    if end < len(text):
        pieces.append(Piece(_ELLIPSIS))
    return pieces


def _places(
    text: str, begins: Sequence[str], is_word: Callable[[str], bool]
) -> list[tuple[int, int]]:
    """Return where words of the query stand in a text: begin and end of each."""
    if not begins:
        return []
    # Letters without spaces between words begin anywhere.
    choices = "|".join(
        re.escape(each) if _is_spaceless(each) else rf"\b{re.escape(each)}\w*"
        for each in sorted({*begins}, key=len, reverse=True)
        if each
    )
    found: list[tuple[int, int]] = []
    for number, match in enumerate(re.finditer(choices, text, re.IGNORECASE)):
        if number >= 4 * _FOUND_MAX or len(found) >= _FOUND_MAX:
            break
        if match[0] and (_is_spaceless(match[0]) or is_word(match[0])):
            found.append(match.span())
    return found


def _is_spaceless(word: str) -> bool:
    return word[:1] >= "\u0e00" and not "\u10a0" <= word[:1] <= "\u177f"


def _best(text: str, places: Sequence[tuple[int, int]], length: int) -> int:
    """Return where the part begins that has the most different words, then the most."""
    if not places:
        return 0
    best, chosen = (0, 0), 0
    first, counts = 0, dict[str, int]()
    words = [text[begin:end].casefold() for begin, end in places]
    for last, (_, end) in enumerate(places):
        counts[words[last]] = counts.get(words[last], 0) + 1
        while end - places[first][0] > length - _BEFORE and first < last:
            counts[words[first]] -= 1
            if not counts[words[first]]:
                del counts[words[first]]
            first += 1
        if (here := (len(counts), last - first + 1)) > best:
            best, chosen = here, first
    begin = max(0, places[chosen][0] - _BEFORE)
    # With its end at that of the text, if that comes first.
    begin = min(begin, max(0, len(text) - length))
    return _word_begin(text, begin, places[chosen][0])


def _word_begin(text: str, begin: int, most: int) -> int:
    if begin == 0:
        return 0
    found = text.find(" ", begin - 1, most)
    return begin if found < 0 else found + 1


def _word_end(text: str, end: int) -> int:
    if end >= len(text):
        return len(text)
    found = text.rfind(" ", max(0, end - 30), end + 1)
    return end if found < 0 else found


def _cut(text: str, begin: int, end: int, places: Sequence[tuple[int, int]]) -> list[Piece]:
    pieces, at = [], begin
    for found, ended in places[bisect_right(places, (begin, -1)) :]:
        if ended > end:
            break
        if found < at:
            continue
        if found > at:
            pieces.append(Piece(text[at:found]))
        pieces.append(Piece(text[found:ended], is_marked=True))
        at = ended
    if at < end:
        pieces.append(Piece(text[at:end]))
    return pieces


def joined(pieces: Iterable[Piece]) -> str:
    return "".join(each.text for each in pieces)
