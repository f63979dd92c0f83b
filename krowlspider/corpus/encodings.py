"""Decode HTML by the Encoding Standard (https://encoding.spec.whatwg.org/), false labels or not."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from w3lib.encoding import resolve_encoding

from krowlspider.corpus.extras import need

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
# The standard looks for the declaration in the first 1,024 bytes.
_DECLARED = 1024
# Bytes that an encoding does not define. Python has private characters for some of them.
_LOST = re.compile("[\ufffd\ue000-\uf8ff]")
# The standard has control characters for others, which no text needs.
_ODD = re.compile("[\ufffd\ue000-\uf8ff\x80-\x9f]")
# An encoding that is wrong loses more characters, and a larger share of the non-ASCII ones.
_LOST_MAX = 3
_LOST_SHARE_MAX = 0.05
# Of other encodings two thirds or more are odd in UTF-8.
_UTF8_MAX = 0.5
# The sets that the standard has made larger. Short UTF-8 may fit the larger one.
_SMALLER = {"cp949": "euc_kr", "cp932": "shift_jis", "big5hkscs": "big5", "gb18030": "gbk"}
# Bytes by which encodings are compared, from the first that is not plain ASCII.
_SAMPLE = 128 * 1024
_NOT_PLAIN = re.compile(rb"[\x1b\x80-\xff]")


@dataclass(frozen=True, slots=True)
class _Reading:
    """A sample in one encoding. ``odd`` is the share of odd characters, 0 if it fits."""

    encoding: str
    text: str
    odd: float


def decoded(body: bytes, content_type: str) -> tuple[str, str]:
    """Return the encoding and the text of HTML: by byte order mark, header, meta element, guess.

    A few bytes that a declared encoding does not define are replaced. With more of them, UTF-8 or
    the guess is taken, if it fits better.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return name, body[len(mark) :].decode(name, "replace")
    declared = next(_declared(body, content_type), "")
    name = declared or "utf-8"
    text = _strict(body, name)
    if text is not None and (name == "utf-8" or _fits(body, text, name)):
        return name, text
    first = _NOT_PLAIN.search(body)
    # An even place: a character of UTF-16 has two bytes.
    start = first.start() & ~1 if first else 0
    label = need("resiliparse.parse.encoding").detect_encoding(body)
    name = _best(body[start : start + _SAMPLE], declared, _codec(label) or "cp1252")
    return name, _text(body, name)


def _strict(body: bytes, name: str) -> str | None:
    try:
        return body.decode(name)
    except UnicodeDecodeError:
        return None


def _fits(body: bytes, text: str, name: str) -> bool:
    """Return whether a strictly decoded text is no UTF-8 or private characters by chance."""
    if _LOST.search(text):
        return False
    smaller = _SMALLER.get(name)
    return smaller is None or _strict(body, "utf-8") is None or _strict(body, smaller) is not None


def _declared(body: bytes, content_type: str) -> Iterator[str]:
    """Yield the known encodings that header and meta element declare."""
    if (header := _CHARSET.search(content_type)) and (name := _codec(header[1])):
        yield name
    meta = _META_CHARSET.search(body, 0, _DECLARED)
    if meta and (name := _codec(meta[1].decode("ascii"))):
        # Who can read this element does not read UTF-16.
        yield "utf-8" if name.startswith("utf-16") else name


def _codec(label: str) -> str | None:
    """Return Python's codec that decodes all that the standard knows by a label, or None."""
    encodings = need("resiliparse.parse.encoding")
    name = encodings.map_encoding_to_html5(label, fallback_utf8=False)
    return resolve_encoding(name) if name else None


def _best(sample: bytes, declared: str, guessed: str) -> str:
    # The escapes of ISO-2022-JP are UTF-8 too.
    has_escapes = declared.startswith("iso2022") and sample.isascii()
    if not has_escapes and _read(sample, "utf-8").odd < _UTF8_MAX:
        return "utf-8"
    if declared in {"", "utf-8"}:
        return guessed
    first, guess = _read(sample, declared), _read(sample, guessed)
    return guessed if _is_better(guess, first, sample) else declared


def _is_better(guess: _Reading, declared: _Reading, sample: bytes) -> bool:
    if len(guess.text) < len(sample):
        return guess.odd < declared.odd / 2
    # An encoding with one byte a character fits most bytes.
    lost, share = _count(_LOST, declared.text)
    return lost > _LOST_MAX and share > _LOST_SHARE_MAX and guess.odd < declared.odd


def _read(sample: bytes, name: str) -> _Reading:
    text = _text(sample, name, is_whole=False)
    return _Reading(name, text, _count(_ODD, text)[1])


def _text(body: bytes, name: str, *, is_whole: bool = True) -> str:
    """Return a body with what its encoding does not define replaced as the standard does."""
    if name in _TABLES:
        return codecs.charmap_decode(body, "replace", _TABLES[name])[0]
    try:
        return codecs.getincrementaldecoder(name)("krowl_replace").decode(body, is_whole)
    except UnicodeError:
        # Python's decoders of ISO-2022 keep few of the bytes that they wait to understand.
        return body.decode(name, "krowl_replace")


def _count(characters: re.Pattern[str], text: str) -> tuple[int, float]:
    """Return how many of these characters a text has, and their share of its non-ASCII ones."""
    count = len(characters.findall(text))
    return count, count / (len(text) - len(text.encode("ascii", "ignore"))) if count else 0


def _table(name: str) -> str:
    """Return the characters of windows-125x, with control characters for undefined bytes."""
    found = bytes(range(256)).decode(name, "replace")
    return found[:0x80] + "".join(
        chr(byte) if found[byte] == "\ufffd" and byte < 0xA0 else found[byte]
        for byte in range(0x80, 256)
    )


_TABLES = {name: _table(name) for name in ("cp874", *(f"cp{page}" for page in range(1250, 1259)))}


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    found = error.object[error.start : error.start + 2]
    if error.encoding == "gb18030" and found[0] == 0x80:
        return "€", error.start + 1
    if error.encoding.startswith(("euc_jp", "iso2022_jp")) and (text := _vendor_kanji(found)):
        return text, error.start + 2
    return "\ufffd", error.end


def _vendor_kanji(pair: bytes) -> str:
    """Return a character of NEC or IBM in EUC-JP or ISO-2022-JP: only Python's codec of Shift_JIS
    knows it. Empty for other bytes."""
    row, cell = (byte & 0x7F for byte in pair.ljust(2))
    if not (0x21 <= row <= 0x7E and 0x21 <= cell <= 0x7E and pair[0] >> 7 == pair[-1] >> 7):
        return ""
    lead = (row + 1) // 2 + (0x70 if row < 0x5F else 0xB0)
    trail = cell + ((0x1F if cell < 0x60 else 0x20) if row % 2 else 0x7E)
    return bytes((lead, trail)).decode("cp932", "ignore")


codecs.register_error("krowl_replace", _replace)
