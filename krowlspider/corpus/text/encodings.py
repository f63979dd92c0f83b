"""Decode HTML as browsers do, unless what is declared does not fit the bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from w3lib.encoding import resolve_encoding

from krowlspider.errors import need
from krowlspider.urls.content.decoding import codec_for, decode
from krowlspider.urls.content.encoding import DEFAULT, known_encoding, mark_of

# Encodings without the text that the bytes were meant for.
_NO_TEXT = frozenset({"replacement", "x-user-defined"})
# Bytes that an encoding does not define. Python has private characters for some of them.
_LOST = re.compile("[\ufffd\ue000-\uf8ff]")
# The standard has control characters for others, which no text needs.
_ODD = re.compile("[\ufffd\ue000-\uf8ff\x80-\x9f]")
# An encoding that is wrong loses more characters, and a larger share of the non-ASCII ones.
_LOST_MAX = 3
_LOST_SHARE_MAX = 0.05
# Of other encodings two thirds or more are odd in UTF-8.
_UTF8_MAX = 0.5
# Characters outside ASCII by which UTF-8 is known where another encoding is declared.
_UTF8_MIN = 2
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


def decoded(body: bytes, charset: str | None) -> tuple[str, str]:
    """Return Python's name of the encoding of HTML, and its text: by byte order mark, ``charset``
    of the HTTP header, meta element, guess.

    A few bytes that a declared encoding does not define are replaced. With more of them, UTF-8 or
    the guess is taken, if it fits better.
    """
    mark, marked = mark_of(body)
    if mark:
        name = codec_for(marked)
        return name, decode(body[len(mark) :], name)
    known = known_encoding(body, charset)
    declared = "" if known is None or known in _NO_TEXT else codec_for(known)
    text = _strict(body, declared or "utf-8")
    if text is not None and (declared == "utf-8" or _fits(body, text, declared or "utf-8")):
        return declared or "utf-8", text
    first = _NOT_PLAIN.search(body)
    # An even place: a character of UTF-16 has two bytes.
    start = first.start() & ~1 if first else 0
    name = _best(body[start : start + _SAMPLE], declared, _guessed(body))
    return name, decode(body, name)


def _guessed(body: bytes) -> str:
    """Return the codec of the encoding that the frequencies of the bytes suggest."""
    encodings = need("resiliparse.parse.encoding")
    label = encodings.detect_encoding(body)
    name = encodings.map_encoding_to_html5(label, fallback_utf8=False)
    return (name and resolve_encoding(name)) or codec_for(DEFAULT)


def _strict(body: bytes, name: str) -> str | None:
    try:
        return body.decode(name)
    except UnicodeDecodeError:
        return None


def _fits(body: bytes, text: str, name: str) -> bool:
    """Return whether a strictly decoded text is no UTF-8 or private characters by chance."""
    if _LOST.search(text) or (len(text) == len(body) and _is_utf8(body)):
        return False
    smaller = _SMALLER.get(name)
    return smaller is None or _strict(body, "utf-8") is None or _strict(body, smaller) is not None


def _is_utf8(body: bytes) -> bool:
    """Return whether a body has at least two characters outside ASCII, and all are UTF-8. In an
    encoding with one byte a character that does not come by chance."""
    if body.isascii() or (text := _strict(body, "utf-8")) is None:
        return False
    return len(text) - len(text.encode("ascii", "ignore")) >= _UTF8_MIN


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
    text = decode(sample, name, is_whole=False)
    return _Reading(name, text, _count(_ODD, text)[1])


def _count(characters: re.Pattern[str], text: str) -> tuple[int, float]:
    """Return how many of these characters a text has, and their share of its non-ASCII ones."""
    count = len(characters.findall(text))
    return count, count / (len(text) - len(text.encode("ascii", "ignore"))) if count else 0
