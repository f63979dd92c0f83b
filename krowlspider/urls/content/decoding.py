"""Decode bytes as the Encoding Standard does, by Python's codecs and what they lack of it."""

from __future__ import annotations

import codecs
from functools import cache

# Python's codecs for encodings of which the standard has a larger set, or another name.
_CODECS = {
    "Shift_JIS": "cp932",
    "EUC-KR": "cp949",
    "Big5": "big5hkscs",
    "GBK": "gb18030",
    "x-mac-cyrillic": "mac-cyrillic",
    "windows-874": "cp874",
    "ISO-8859-8-I": "iso8859-8",
    # The standard has no text for it, so that nothing is injected. Nothing is run here.
    "replacement": "utf-8",
}
_ON_ERROR = "krowlspider.decode"


@cache
def codec_for(encoding: str) -> str:
    """Return the name of Python's codec that `decode` takes for a WHATWG encoding."""
    name = _CODECS.get(encoding, encoding)
    return name if name in _TABLES else codecs.lookup(name).name


def decode(body: bytes, codec: str, *, is_whole: bool = True, is_exact: bool = True) -> str:
    """Return the text of a body; what its encoding does not define is replaced as by the standard.

    ``codec`` is what `codec_for` returns. If the body is not whole, the start of a character at its
    end is left out. What only Python's codec lacks is looked up if the text is to be exact. That
    takes microseconds for each bad byte, so a stranger's body must not be read so on the loop.
    """
    if codec in _TABLES:
        return codecs.charmap_decode(body, "replace", _TABLES[codec])[0]
    errors = _ON_ERROR if is_exact else "replace"
    try:
        return codecs.getincrementaldecoder(codec)(errors).decode(body, is_whole)
    except UnicodeError:
        # Python's decoders of ISO-2022 keep few of the bytes that they wait to understand.
        return body.decode(codec, errors)


def _table(name: str) -> str:
    """Return the characters of windows-125x, with control characters for undefined bytes."""
    found = bytes(range(256)).decode(name, "replace")
    return found[:0x80] + "".join(
        chr(byte) if found[byte] == "\ufffd" and byte < 0xA0 else found[byte]
        for byte in range(0x80, 256)
    )


_TABLES = {
    **{name: _table(name) for name in ("cp874", *(f"cp{page}" for page in range(1250, 1259)))},
    "x-user-defined": "".join(chr(byte if byte < 0x80 else 0xF700 + byte) for byte in range(256)),
}


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


codecs.register_error(_ON_ERROR, _replace)
