"""Pure: read a dictionary of structured fields (RFC 9651, section 4.2.2)."""

from __future__ import annotations

import re

_KEY = r"[a-z*][a-z0-9_.*-]*+"
_WORD = r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*+"
# Numbers, dates, strings, byte sequences, booleans, and strings of Unicode.
_OTHERS = (
    r"@?-?\d{1,15}+(?![\d.])|-?\d{1,12}+\.\d{1,3}+(?!\d)",
    r'"(?:[ !#-\[\]-~]++|\\["\\])*"',
    r":[A-Za-z0-9+/=]*+:|\?[01]",
    r'%"(?:[ !#$&-~]++|%[0-9a-f]{2})*"',
)
_ITEM = rf"(?:{_WORD}|{'|'.join(_OTHERS)})"
_PARAMETERS = rf"(?:; *{_KEY}(?:={_ITEM})?)*"
_LIST = rf"\( *(?:{_ITEM}{_PARAMETERS}(?: +(?=[^ ])|(?=\))))*\)"
# Groups are not repeated by "*+": before Python 3.11.5 a failed repetition is not undone
# (gh-106052). Nothing in them can be matched in two ways, so that they take linear time.
# The key; then a token, or another value or none.
_MEMBER = re.compile(rf"({_KEY})(?:=(?:({_WORD})|{_LIST}|{'|'.join(_OTHERS)}))?{_PARAMETERS}")
_COMMA = re.compile(r"[ \t]*+,[ \t]*+")


def tokens_in(value: str) -> dict[str, str | None] | None:
    """Return the token that each key has, None for another value; None if it is no dictionary.

    The last of a repeated key counts. Parameters are left out.
    """
    text = value.strip(" ")
    found: dict[str, str | None] = {}
    place = 0
    while place < len(text):
        member = _MEMBER.match(text, place)
        if member is None:
            return None
        # A repeated key keeps its place, which matters to nobody.
        found[member[1]] = member[2]
        place = member.end()
        if place == len(text):
            break
        comma = _COMMA.match(text, place)
        if comma is None or comma.end() == len(text):
            return None
        place = comma.end()
    return found
