"""Find the URLs in CSS: ``url()`` and ``@import`` (CSS Syntax Module Level 3).

Comments and strings are honoured. The time is linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from krowlspider.urls.content.decoding import codec_for, decode
from krowlspider.urls.content.encoding import encoding_named, mark_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# Bytes of a style sheet that are read. Larger ones hold fonts and pictures as data: URLs.
BYTES_MAX = 2 * 1024 * 1024

# The first character class makes the search skip all other characters quickly. A string without its
# end stops at the end of the line.
_TOKEN = re.compile(
    r"""[@uU"'/\\](?:
        (?<=/)\*.*?(?:\*/|\Z)
      | (?<=[uU])[rR][lL]\(\s*+
            (?:"((?:[^"\\]++|\\.)*+)"?|'((?:[^'\\]++|\\.)*+)'?
              |((?:[^\s"'()\\]++|\\[0-9a-fA-F]{1,6}\s?+|\\.)*+))
      | (?<=@)(?i:import)\b(?:\s++|/\*.*?(?:\*/|\Z))*+(?:[uU][rR][lL]\(\s*+)?+
            (?:"((?:[^"\\]++|\\.)*+)"?|'((?:[^'\\]++|\\.)*+)'?|((?:[^\s"'()\\;]++|\\.)*+))
      | (?<=@)(?i:namespace)\b[^;]*+
      | (?<=")(?:[^"\\\n]++|\\.)*+"?
      | (?<=')(?:[^'\\\n]++|\\.)*+'?
      | (?<=\\).
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:([0-9a-f]{1,6})\s?|(\n)|(.))", re.IGNORECASE | re.DOTALL)
_CHARSET = re.compile(rb'@charset "([A-Za-z0-9_.:-]{1,40})";')


def urls_in(css: str) -> Iterator[tuple[str, bool]]:
    """Yield (reference, whether ``@import`` names it) for each URL of a style sheet, in order."""
    for found in _TOKEN.finditer(css):
        if at := found.lastindex:
            text = found[at]
            if text:
                yield (_ESCAPE.sub(_unescape, text) if "\\" in text else text), at > 3


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


def _unescape(found: re.Match[str]) -> str:
    if code := found[1]:
        value = int(code, 16)
        return chr(value) if 0 < value < 0x110000 and not 0xD800 <= value < 0xE000 else "\ufffd"
    return found[3] or ""
