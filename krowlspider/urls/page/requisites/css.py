"""Find the URLs in CSS: ``url()``, ``@import`` and ``image-set()`` (CSS Syntax Module Level 3).

Comments and strings are honoured. The time is linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from krowlspider.urls.encoding import codec_for, decode, encoding_named, mark_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# Bytes of a style sheet that are read. Larger ones hold fonts and pictures as data: URLs.
BYTES_MAX = 2 * 1024 * 1024

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
    """Return the text of a style sheet, up to BYTES_MAX bytes; no bytes raise an error.

    ``charset`` is the WHATWG name of the encoding by the HTTP header; it comes after a byte order
    mark, and before ``@charset``. Otherwise it is UTF-8.
    """
    body = body[:BYTES_MAX]
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
