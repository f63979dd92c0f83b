"""What a response is, and the encoding of a document, found as browsers do.

Find the encoding of a document as browsers do, and decode it. HTML, section 13.2.3.2; Encoding
Standard. Encodings have their WHATWG names here, as "windows-1252". Python's codecs decode, and the
code here has what they lack.
"""

from __future__ import annotations

import codecs
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.internals.frostwork import detect_encoding

if TYPE_CHECKING:
    from collections.abc import Iterable

# The encoding of a document that declares none and is no UTF-8.
DEFAULT = "windows-1252"
_MARKS = (
    (codecs.BOM_UTF8, "UTF-8"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)
_ANY_MARK = tuple(mark for mark, _ in _MARKS)
# The start of an XML declaration in UTF-16 without a byte order mark.
_XML_UTF_16 = ((b"<\0?\0x\0", "UTF-16LE"), (b"\0<\0?\0x", "UTF-16BE"))
# Labels whose meaning differs within a document, so that `encoding_named` cannot ask there.
_UTF_8 = ("unicode-1-1-utf-8", "unicode11utf8", "unicode20utf8", "utf-8", "utf8", "x-unicode20utf8")
_UTF_16LE = ("csunicode", "iso-10646-ucs-2", "ucs-2", "unicode", "unicodefeff", "utf-16")
_LABELS = {
    **dict.fromkeys(_UTF_8, "UTF-8"),
    **dict.fromkeys((*_UTF_16LE, "utf-16le"), "UTF-16LE"),
    **dict.fromkeys(("unicodefffe", "utf-16be"), "UTF-16BE"),
    "x-user-defined": "x-user-defined",
}
_LABEL = re.compile(r"[a-z0-9._:-]+")
_WHITESPACE = " \t\n\f\r"
# Who can read a declaration in the document does not read UTF-16. The other name is legacy.
_IN_DOCUMENT = {"UTF-16LE": "UTF-8", "UTF-16BE": "UTF-8", "x-user-defined": DEFAULT}
# Bytes in which a declaration counts wherever it is, and in which it counts in the head.
_ANYWHERE = 1024
_IN_HEAD = 256 * 1024
# Bytes of a meta element that are read.
_META_MAX = 8 * 1024
# Bytes that are checked to be UTF-8.
_CHECKED = 4 * 1024 * 1024

# How most pages begin: they need no search.
_USUAL = re.compile(
    rb"""\s*+(?:<!doctype[^>]*+>\s*+)?"""
    rb"""(?:<html(?=[\s>])[^>"']*+(?:(?>"[^"]*+"|'[^']*+')[^>"']*+){0,20}>\s*+)?(?:<head>\s*+)?"""
    rb"""<meta\s++charset=(?:"utf-8"|'utf-8'|utf-8(?=[\s>]))\s*+/?>""",
    re.IGNORECASE,
)
# A tag, a comment or a declaration. The value of an attribute may have ">" in quotes. Neither an
# atomic group nor a possessive "*+" is undone, so the expression is linear.
_TAG = re.compile(
    rb"""<(?:(/?)([A-Za-z][^\s/>]*+)([^>=]*+(?:=\s*+(?>"[^"]*+"|'[^']*+'|)[^>=]*+)*)"""
    rb"|!--(?:-?>|.*?(?:--!?>|\Z))|[!?][^>]*+)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(rb"""([^\s/>=]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]*+)))?""")
# HTML, section 2.5.3: the label in a ``content``.
_CONTENT = re.compile(
    rb"""charset\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s;"'][^\s;]*+))""", re.IGNORECASE
)
_XML = re.compile(rb"""<\?xml[^>]*?encoding[\0- ]*+=[\0- ]*+(?:"([^"\0- ]*)"|'([^'\0- ]*)')""")
# The ends of elements whose content is no markup.
_RAW = {
    name: re.compile(b"</" + name, re.IGNORECASE)
    for name in b"script style title textarea iframe xmp noembed noframes".split()
}
_OF_HEAD = frozenset(
    b"html head base link meta object template noscript script style title".split()
)


def encoding_named(label: str) -> str | None:
    """Return the encoding that an HTTP header names by a label; None if browsers do not know it."""
    label = label.strip(_WHITESPACE).lower()
    if label in _LABELS:
        return _LABELS[label]
    if not _LABEL.fullmatch(label):
        return None
    # frostwork takes Python's names too where it is given a label, but not in a document.
    found = detect_encoding(b"<meta charset=%b>" % label.encode(), None)
    return None if found == "UTF-8" else found


def encoding_of(body: bytes, charset: str | None) -> str:
    """Return the encoding of a document: what `known_encoding` finds, or DEFAULT."""
    return known_encoding(body, charset) or DEFAULT


def known_encoding(body: bytes, charset: str | None) -> str | None:
    """Return the encoding that a document declares or fits; None if it declares none and is no
    UTF-8.

    ``charset`` is the encoding by the HTTP header, if any. A byte order mark comes before it, and a
    meta element or an XML declaration after it. No bytes raise an error.
    """
    return mark_of(body)[1] or charset or _declared(body) or ("UTF-8" if _is_utf8(body) else None)


def mark_of(body: bytes) -> tuple[bytes, str]:
    """Return the byte order mark of a body, and its encoding; both are empty without one."""
    if not body.startswith(_ANY_MARK):
        return b"", ""
    return next(each for each in _MARKS if body.startswith(each[0]))


def _declared(body: bytes) -> str | None:
    """Return the encoding that a document declares.

    As in Chrome, a meta element counts near the start, and further behind only in the head.
    """
    if _USUAL.match(body):
        return "UTF-8"
    for start, encoding in _XML_UTF_16:
        if body.startswith(start):
            return encoding
    at, end = 0, _IN_HEAD
    while (tag := _TAG.search(body, at, _IN_HEAD)) and tag.start() < end:
        at = tag.end()
        slash, name, attributes = tag.groups()
        if name is None:
            continue
        name = name.lower()
        is_meta = name == b"meta" and not slash and body.startswith(b">", at)
        if is_meta and (found := _declared_by(attributes[:_META_MAX])):
            return found
        if name not in _OF_HEAD:
            end = _ANYWHERE
        if name in _RAW and not slash:
            close = _RAW[name].search(body, at, _IN_HEAD)
            at = close.start() if close else _IN_HEAD
    xml = _XML.match(body)
    return _named(xml[1] or xml[2] or b"") if xml else None


def _declared_by(attributes: bytes) -> str | None:
    """Return the encoding that a meta element declares, given its attributes."""
    if b"charset" not in attributes.lower():
        return None
    values: dict[bytes, bytes] = {}
    for name, double, single, plain in _ATTRIBUTE.findall(attributes):
        values.setdefault(name.lower(), double or single or plain)
    if b"charset" in values:
        return _named(values[b"charset"])
    if values.get(b"http-equiv", b"").lower() != b"content-type":
        return None
    content = _CONTENT.search(values.get(b"content", b""))
    return _named(content[1] or content[2] or content[3] or b"") if content else None


def _named(label: bytes) -> str | None:
    name = encoding_named(label.decode("latin-1"))
    return None if name is None else _IN_DOCUMENT.get(name, name)


def _is_utf8(body: bytes) -> bool:
    try:
        codecs.utf_8_decode(body[:_CHECKED], "strict", len(body) <= _CHECKED)
    except UnicodeDecodeError:
        return False
    return True


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


XHTML = "application/xhtml+xml"
PDF = "application/pdf"
# What browsers show as a page of HTML.
HTML = frozenset({"text/html", XHTML, "application/vnd.wap.xhtml+xml"})
# Types that are as good as none; "*/*" is left out before.
_UNKNOWN = frozenset({"", "unknown/unknown", "application/unknown"})
# Characters of a header that are read.
_VALUE_MAX = 1024
_CACHED = 256
# Bytes of a body that are read: the resource header of the standard.
_HEADER_MAX = 1445

# A quoted string, other text, or a comma between values.
_PART = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[^",]+|,', re.DOTALL)
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TYPE = re.compile(rf"[ \t\r\n]*({_WORD}/{_WORD})[ \t\r\n]*(;.*)?", re.DOTALL)
_PARAMETER = re.compile(
    r';[ \t\r\n]*([^;=]*)(?:=(?:"((?:[^"\\]|\\.)*)(?:"|\\?\Z)[^;]*|([^;]*)))?', re.DOTALL
)
_QUOTED_PAIR = re.compile(r"\\(.)", re.DOTALL)

# Where the standard asks for a blank or ">" behind a tag, Chrome takes any whitespace, and behind
# "<!--" anything.
_HTML_START = re.compile(
    rb"[\t\n\f\r ]*+<(?:!--.|(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style"
    rb"|title|b|body|br|p)[\t\n\f\r >])",
    re.IGNORECASE | re.DOTALL,
)
_XML_START = re.compile(rb"[\t\n\f\r ]*+<\?xml")
# What may come before the first element of XML.
_PROLOGUE = re.compile(rb"<!--.*?-->|<[!?][^>]*+>", re.DOTALL)
_XHTML_ROOT = re.compile(rb"\s*<html\s[^>]*http://www\.w3\.org/1999/xhtml")


class ContentType(NamedTuple):
    """What the Content-Type of a response says.

    ``essence`` is the media type in lower case without parameters, empty without a valid one.
    ``charset`` is the WHATWG name of the encoding; None if no known one is named.
    """

    essence: str
    charset: str | None


def content_type_of(values: Iterable[bytes]) -> ContentType:
    """Return what the Content-Type headers of a response say: the last valid one counts."""
    return _extracted(b", ".join(values)[:_VALUE_MAX])


def computed_type(values: Iterable[bytes], options: Iterable[bytes], body: bytes) -> ContentType:
    """Return the type of a response, given its headers Content-Type and X-Content-Type-Options.

    Without a valid one, the body shows it: HTML, XML or PDF; the essence is empty for any other.
    """
    given = content_type_of(values)
    if given.essence not in _UNKNOWN:
        return given
    return ContentType(_sniffed(options, body), given.charset)


def _sniffed(options: Iterable[bytes], body: bytes) -> str:
    """Return HTML, XML or PDF; empty for any other body, or if the options forbid to look.

    XML is XHTML if its first element is.
    """
    if b",".join(options).partition(b",")[0].strip().lower() == b"nosniff":
        return ""
    head = body[:_HEADER_MAX]
    if _HTML_START.match(head):
        return "text/html"
    if _XML_START.match(head):
        return XHTML if _XHTML_ROOT.match(_PROLOGUE.sub(b"", head)) else "text/xml"
    return PDF if head.startswith(b"%PDF-") else ""


@lru_cache(maxsize=_CACHED)
def _extracted(value: bytes) -> ContentType:
    essence, charset, kept = "", None, None
    for part in _parts(value.decode("latin-1")):
        found = _TYPE.fullmatch(part)
        if found is None or found[1] == "*/*":
            continue
        named = _charset_in(found[2] or "")
        if found[1].lower() != essence:
            essence, kept = found[1].lower(), named
        charset = named if named is not None else kept
    return ContentType(essence, None if charset is None else encoding_named(charset))


def _parts(value: str) -> list[str]:
    """Split a list at its commas, but for those in quoted strings."""
    parts = [""]
    for found in _PART.findall(value):
        if found == ",":
            parts.append("")
        else:
            parts[-1] += found
    return [part.strip(" \t\r\n") for part in parts]


def _charset_in(parameters: str) -> str | None:
    """Return the label in the first ``charset`` of a media type."""
    for name, quoted, plain in _PARAMETER.findall(parameters):
        value = _QUOTED_PAIR.sub(r"\1", quoted) if quoted else plain.rstrip(" \t\r\n")
        if value and name.lower() == "charset":
            return value
    return None
