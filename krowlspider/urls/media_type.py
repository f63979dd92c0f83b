"""Find out what a response is as browsers do (Fetch Standard, section 2.2.2; MIME Sniffing)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.urls.encoding import encoding_named

if TYPE_CHECKING:
    from collections.abc import Iterable

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
