"""Write the queries of links in the encoding of their page (WHATWG URL Standard, query state).

Browsers encode only the query so; path and fragment are always UTF-8.
"""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Characters that the encoded queries of a page may have together. Links beyond are left out.
QUERIES_MAX = 256 * 1024

# WHATWG names of encodings whose forms and links are UTF-8 (Encoding Standard, section 4.3).
_UTF_8 = frozenset({"UTF-8", "UTF-16LE", "UTF-16BE", "replacement"})
# Python's codecs for encodings of which the WHATWG has another variant, or another name.
_CODECS = {
    "Shift_JIS": "cp932",
    "EUC-KR": "cp949",
    "Big5": "big5hkscs",
    "x-mac-cyrillic": "mac-cyrillic",
    "windows-874": "cp874",
    "ISO-8859-8-I": "iso8859-8",
    "x-user-defined": "ascii",
    "replacement": "utf-8",
}
# Ignored wherever they stand in a URL.
_IGNORED: dict[int, str | None] = dict.fromkeys(map(ord, "\t\n\r"))
# What Python's codecs encode otherwise than the Encoding Standard.
_REPLACED: dict[str, dict[int, str | None]] = {
    "Shift_JIS": _IGNORED | {0xA5: "\\", 0x203E: "~"},
    "Big5": _IGNORED | {0x20AC: "%A3%E1"},
    "GBK": _IGNORED | {0x20AC: "%80"},
    "gb18030": _IGNORED | {0xE5E5: "%26%2358853%3B"},
    "ISO-2022-JP": _IGNORED | dict.fromkeys((0x0E, 0x0F, 0x1B), "%26%2365533%3B"),
    "x-user-defined": _IGNORED | {0xF700 + byte: f"%{byte:X}" for byte in range(0x80, 0x100)},
}
_C0_OR_SPACE = "".join(map(chr, range(33)))
# Bytes to escape here; the URL parser escapes the others of ASCII.
_ESCAPED = re.compile(rb'[^ !"$-~]+')
_ON_ERROR = "krowlspider.query"


def encode_queries(hrefs: Iterable[str], encoding: str, oversize: list[str]) -> list[str]:
    """Return ``hrefs`` with their non-ASCII queries percent-encoded in a WHATWG encoding.

    Those beyond QUERIES_MAX are left out and added to ``oversize``.
    """
    if encoding in _UTF_8:
        return list(hrefs)
    found, room = [], QUERIES_MAX
    for href in hrefs:
        if not href.isascii() and "?" in href:
            before, hash_, fragment = href.partition("#")
            path, mark, query = before.partition("?")
            if not query.isascii():
                room -= len(query)
                if room < 0:
                    oversize.append(href)
                    continue
                query = _encoded(query if hash_ else query.rstrip(_C0_OR_SPACE), encoding)
                found.append(f"{path}{mark}{query}{hash_}{fragment}")
                continue
        found.append(href)
    return found


def _encoded(query: str, encoding: str) -> str:
    text = query.translate(_REPLACED.get(encoding, _IGNORED))
    octets = text.encode(_CODECS.get(encoding, encoding), _ON_ERROR)
    return _ESCAPED.sub(_escape, octets).decode("ascii")


def _escape(found: re.Match[bytes]) -> bytes:
    return b"%" + found[0].hex("%").upper().encode()


def _of_no_code(error: UnicodeError) -> tuple[str, int]:
    """Write characters that an encoding lacks as HTML references, percent-encoded."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join([_lacking(letter, error.encoding) for letter in lacking]), error.end


def _lacking(letter: str, codec: str) -> str:
    code = ord(letter)
    # The windows encodings map bytes without a letter to these control characters.
    if codec == "charmap" and 0x80 <= code < 0xA0:
        return f"%{code:X}"
    if codec == "euc_jp":
        # Python's codec lacks what the WHATWG has taken from Shift_JIS, such as "①" and "～".
        with suppress(UnicodeEncodeError, ValueError):
            lead, trail = letter.encode("cp932")
            if lead < 0xF0:
                row = (lead - (0x81 if lead < 0xA0 else 0xC1)) * 188
                row, cell = divmod(row + trail - (0x40 if trail < 0x7F else 0x41), 94)
                return f"%{row + 0xA1:X}%{cell + 0xA1:X}"
    return f"%26%23{code}%3B"


codecs.register_error(_ON_ERROR, _of_no_code)
