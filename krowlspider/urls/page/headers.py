"""HTTP headers that concern crawlers, queries in a page's encoding, and a bound of time for
scans.

Bound the time of one scan of HTML to 0.25 s, for any bytes. For an end tag that closes nothing, the
scanner walks its whole stack of open elements. So many ``<div>`` and then as many ``</span>`` take
quadratic time. So do ``<frameset>`` and then ``<body>``, and the name of a tag that does not end.
All else takes linear time.

Write the queries of links in the encoding of their page (WHATWG URL Standard, query state).
Browsers encode only the query so; path and fragment are always UTF-8.
"""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from krowlspider.urls.canonical import normalise, normalise_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# Bytes of HTML that are read; entities are the slowest to scan.
_BYTES_MAX = 4 * 1024 * 1024
# Tags that are read.
_TAGS_MAX = 100_000
# A page with no more tags is scanned as it is: n start tags and n end tags walk at most n * n
# elements.
_TAGS_SAFE = 12_000
_WALK_MAX = (_TAGS_SAFE // 2) ** 2
# Links of a page of which the texts are read, outside the crawl. They may walk as many times
# _TAGS_MAX elements, in some seconds, but only on a page with "<a" in its comments or scripts.
LINK_TAGS_MAX = 6000
# A page with no more bytes cannot exceed _WALK_MAX: "<a>" has 3 bytes and "</b>" 4, so b bytes walk
# at most b * b / 48 elements.
_BYTES_SAFE = 41_500
# Counting takes a nanosecond a byte, so the start of a page is counted only if it matters: it has
# at most a third as many tags as bytes. Most pages that are counted are short, and then most of the
# page is the start.
_START, _SHORT_START = 24_000, 33_000
_SHORT = 60_000

# The scanner reads the name of each tag in the first bytes, up to its end, to find the encoding.
_PRESCAN = 1024
_NAME_MAX = 64 * 1024
_NAME_END = re.compile(rb"[ \t\n\r\f>/]")
_NAME = re.compile(rb"<[A-Za-z][^ \t\n\r\f>/]*\Z")

# All end tags except those that end raw text. They can be removed, as no selector of the reading
# plan depends on the parent of an element.
_NEEDLESS_END = re.compile(
    rb"</(?=[a-z])(?!(?:script|style|title|textarea|xmp|iframe|noembed|noframes)\b)", re.IGNORECASE
)
# The same but for those of links.
_NEEDLESS_BUT_LINKS = re.compile(
    rb"</(?=[a-z])(?!(?:a|script|style|title|textarea|xmp|iframe|noembed|noframes)\b)",
    re.IGNORECASE,
)
_LINK_TAG = re.compile(rb"<(/?)a(?=[\s/>])", re.IGNORECASE)
_FRAMESET = re.compile(rb"<(?=frameset[\s/>])", re.IGNORECASE)
_BODY = re.compile(rb"<(?=body[\s/>])", re.IGNORECASE)
_NUL_IN_NAME = re.compile(rb"<[^>\s\0]{0,8}\0")
# Any bytes that may begin an end tag, in any encoding: in UTF-16, NUL follows every "<".
_MAYBE_END = re.compile(rb"<(?![A-Za-z!?])")


def bounded(
    body: bytes, needless: re.Pattern[bytes] = _NEEDLESS_END, walk_max: int = _WALK_MAX
) -> bytes:
    """Return ``body``, or for a very large one a copy that is cut or lacks its ``needless`` end
    tags.

    The result has the links of ``body`` up to the cut, but for "</" and a letter in an attribute.
    """
    if len(body) <= _BYTES_SAFE:
        return body
    body = body[:_BYTES_MAX]
    after = _PRESCAN + _NAME_MAX
    if not _NAME_END.search(body, _PRESCAN, after) and _NAME.search(body, 0, _PRESCAN):
        body = body[:after]
    start = _SHORT_START if len(body) <= _SHORT else _START
    tags = body.count(b"<", start)
    if tags + start // 3 <= _TAGS_SAFE:
        return body
    tags += body.count(b"<", 0, start)
    if tags <= _TAGS_SAFE:
        return body
    if tags > _TAGS_MAX:
        body = _first_tags(body, _TAGS_MAX)
    if _NUL_IN_NAME.search(body):
        # The scanner leaves NUL out, so it may hide such tags.
        return _first_tags(body, _TAGS_SAFE)
    body = _FRAMESET.sub(b"<!", needless.sub(b"<!", body))
    if first := _BODY.search(body):
        body = body[: first.end()] + _BODY.sub(b"<!", body[first.end() :])
    if len(_MAYBE_END.findall(body)) * min(tags, _TAGS_MAX) <= walk_max:
        return body
    return _first_tags(body, _TAGS_SAFE)


def bounded_with_link_texts(body: bytes) -> bytes:
    """Return as `bounded` does a copy from which the texts of links can be read.

    A link ends where it is closed, or where the next one begins (HTML, section 13.2.6.4.7). So no
    text belongs to two links, and the texts take no more room than the page. The page is cut behind
    its LINK_TAGS_MAX-th ``<a>``.
    """
    ended = _end_links(body[:_BYTES_MAX])
    return bounded(ended, _NEEDLESS_BUT_LINKS, LINK_TAGS_MAX * _TAGS_MAX)


def _end_links(body: bytes) -> bytes:
    """Return a body in which each link ends before the next begins, and each end has a link."""
    is_open = False
    parts: list[bytes] = []
    at = count = 0
    for tag in _LINK_TAG.finditer(body):
        was_open, is_open = is_open, not tag[1]
        if tag[1]:
            added = b"" if was_open else b"<!"
        else:
            added = b"</a>" if was_open else b""
            count += 1
        if added or count == LINK_TAGS_MAX:
            parts += [body[at : tag.start()], added]
            # "</a" that closes nothing becomes "<!/a".
            at = tag.start() + (added == b"<!")
        if count == LINK_TAGS_MAX:
            return b"".join(parts)
    return b"".join([*parts, body[at:]]) if parts else body


def _first_tags(body: bytes, count: int) -> bytes:
    return b"<".join(body.split(b"<", count + 1)[: count + 1])


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


# Links taken from the headers of one page, which may contain thousands.
MAX_HEADER_LINKS = 100

# IANA link relations that lead to another page, of headers and of ``link`` elements. Excluded are
# parts of this page (preload, dns-prefetch, stylesheet, icon) and machine interfaces (hub,
# https://api.w.org/). "alternate stylesheet" is a part of it too.
FOLLOWED = frozenset(
    {
        *("next", "prev", "previous", "first", "last", "start", "up"),
        *("contents", "index", "chapter", "section", "subsection", "appendix", "glossary"),
        *("alternate", "collection", "item", "related", "bookmark"),
    }
)
# The possessive "*+" keeps both expressions linear in the length of the header. The parameters of a
# link are not repeated by it: before Python 3.11.5 a failed repetition is not undone (gh-106052).
_LINK = re.compile(r'<([^<>]*+)>((?:[^,"]++|"(?:[^"\\]++|\\.)*+")*)', re.DOTALL)
_PARAMETER = re.compile(
    r';\s*+([^\s=;,"]++)\s*+=\s*+(?:"((?:[^"\\]++|\\.)*+)"|([^\s;,"]++))', re.DOTALL
)
# "5; url='/x'": HTML, section 4.2.5.3, shared declarative refresh steps. The possessive "*+" keeps
# the expression linear in the length of the text. "(?:url=)?+" would be read wrongly by Python
# before 3.11.5 (gh-106052).
_REFRESH = re.compile(
    r"""\s*+[\d.]++(?:\s*+[;,]|\s)\s*+(?:url\s*+=\s*+|(?!url\s*+=))(?:"([^"]*)|'([^']*)|(.+))""",
    re.IGNORECASE | re.DOTALL | re.ASCII,
)
# Rules of X-Robots-Tag that have a value; any other name before a colon names a crawler.
_VALUED = frozenset({"max-image-preview", "max-snippet", "max-video-preview", "unavailable_after"})


_NON_ASCII = re.compile(rb"[\x80-\xff]+")


def values_of(headers: Mapping[bytes, list[bytes]], name: bytes) -> list[bytes]:
    """Return all values of a header. ``name`` has the case of Scrapy's keys, as "Content-Type".

    `Headers.getlist` would bring the name into that case again at each call.
    """
    values: list[bytes] = dict.get(headers, name) or []  # type: ignore[call-overload]
    return values


def value_of(headers: Mapping[bytes, list[bytes]], name: bytes) -> bytes | None:
    """Return the last value of a header, as `Headers.get` does; ``name`` is as in `values_of`."""
    values: list[bytes] | None = dict.get(headers, name)  # type: ignore[call-overload]
    return values[-1] if values else None


# Headers by which a request offers to pay: Cloudflare's, and those of x402.
PAYMENTS = frozenset(
    {b"Crawler-Exact-Price", b"Crawler-Max-Price", b"X-Payment", b"Payment-Signature"}
)
# Headers of a signed request (RFC 9421, section 4, and Web Bot Auth).
SIGNATURES = frozenset({b"Signature", b"Signature-Agent", b"Signature-Input"})
# Characters of a price that are kept.
PRICE_MAX = 40


def price_in(headers: Mapping[bytes, list[bytes]]) -> str:
    """Return the price that an answer asks for by Crawler-Price (Cloudflare's pay per crawl), such
    as "USD 0.01"; "" without one. Of a stranger's text only printable ASCII is kept."""
    value = value_of(headers, b"Crawler-Price") or b""
    return "".join(filter(str.isprintable, value[:PRICE_MAX].decode("ascii", "ignore"))).strip()


# Characters of a term that are kept, and licences that are read.
_TERM_MAX = 300
_LICENCES_MAX = 5


def terms_in(headers: Mapping[bytes, list[bytes]]) -> list[str]:
    """Return what an answer says about the use of its page: each Content-Usage of IETF AIPREF, and
    the links to licences (RFC 8288, as of RSL), as `Link: <URL>; rel="license"`. Only what is
    printable is kept."""
    if not (values_of(headers, b"Content-Usage") or values_of(headers, b"Link")):
        return []
    found = [
        f"Content-Usage: {value.decode('latin-1')}"
        for value in values_of(headers, b"Content-Usage")
    ]
    if any(b"license" in value.lower() for value in values_of(headers, b"Link")):
        links = _links(value.decode("latin-1") for value in values_of(headers, b"Link"))
        licences = [
            (href, parameters.get("type", ""))
            for href, parameters in links
            if "license" in parameters.get("rel", "").lower().split()
        ]
        found += [
            f'Link: <{href}>; rel="license"' + (f'; type="{kind}"' if kind else "")
            for href, kind in licences[:_LICENCES_MAX]
        ]
    return ["".join(filter(str.isprintable, text))[:_TERM_MAX].strip() for text in found]


def escape_octets(value: bytes) -> str:
    """Return a header's value with its non-ASCII bytes percent-encoded, as browsers read URLs."""
    return _NON_ASCII.sub(lambda found: b"%" + found[0].hex("%").upper().encode(), value).decode(
        "ascii"
    )


def read_links(
    headers: Iterable[str], url: str, *, follow_nofollow: bool
) -> tuple[list[str], str | None]:
    """Return (links, target of ``rel=canonical`` or None) from the Link headers of ``url``.

    All URLs are normalised, and at most MAX_HEADER_LINKS links are returned. Left out are links
    with ``rel=nofollow`` unless ``follow_nofollow``, to a type other than HTML, to a style sheet,
    and of another page (``anchor``).
    """
    hrefs, canonical = [], None
    for href, parameters in _links(headers):
        relations = set(parameters.get("rel", "").lower().split())
        if "anchor" in parameters:
            continue
        if canonical is None and "canonical" in relations:
            canonical = normalise(href, url)
        media_type = parameters.get("type", "") or "html"
        if relations.isdisjoint(FOLLOWED) or "html" not in media_type.lower():
            continue
        if "stylesheet" in relations:
            continue
        if follow_nofollow or "nofollow" not in relations:
            hrefs.append(href)
    # Most pages have no such link, so the base need not be parsed.
    links = normalise_all(hrefs[:MAX_HEADER_LINKS], url) if hrefs else []
    return links, canonical


def targets_of(headers: Iterable[str], relation: str, media_type: str) -> list[str]:
    """Return the targets, as written, of the links of a page in its Link headers that have a
    relation and a media type."""
    return [
        href
        for href, parameters in _links(headers)
        if relation in parameters.get("rel", "").lower().split()
        and parameters.get("type", "").partition(";")[0].strip().lower() == media_type
        and "anchor" not in parameters
    ]


def read_refresh(values: Iterable[bytes], url: str, encoding: str, refused: list[str]) -> list[str]:
    """Return the normalised target of the Refresh headers of ``url``; none without one.

    It is relative to ``url``, whatever the base of the document is, whose WHATWG ``encoding`` is
    that of the query. One that is no http(s) URL is added to ``refused``.
    """
    target = refresh_target(b", ".join(values).decode("latin-1"))
    if target is None:
        return []
    return normalise_all(encode_queries([target], encoding, refused), url, refused, refused)


def refresh_target(value: str) -> str | None:
    """Return the URL in a Refresh header or ``meta`` element as it is written; None without one."""
    match = _REFRESH.match(value)
    return match[match.lastindex or 0].strip() or None if match else None


def _links(headers: Iterable[str]) -> Iterator[tuple[str, dict[str, str]]]:
    for header in headers:
        for href, rest in _LINK.findall(header):
            parameters: dict[str, str] = {}
            for name, quoted, plain in _PARAMETER.findall(rest):
                # The first of a repeated parameter counts: RFC 8288, section 3.3.
                parameters.setdefault(name.lower(), quoted or plain)
            yield href, parameters


_PRODUCT = re.compile(r"\*|[a-z_-][0-9a-z_-]*+")


def read_robots_tag(headers: Iterable[str], agent: str) -> set[str]:
    """Return the rules of X-Robots-Tag headers for all crawlers and for ``agent``, without their
    values, in lower case."""
    return {
        rule.partition(":")[0].strip() for header in headers for rule in rules_for(agent, header)
    }


def rules_for(agent: str, header: str) -> Iterator[str]:
    """Yield the rules of an X-Robots-Tag header for all crawlers and for ``agent``, with their
    values, in lower case. Parts of dates that contain commas are yielded too.

    A name and a colon address the rules that follow in that header to one crawler, by its product
    token: ``otherbot: noindex, nofollow``.
    """
    addressed = "*"
    for part in header.lower().split(","):
        name, colon, rule = part.partition(":")
        # Text before a colon that is no product token is part of a date.
        if colon and _PRODUCT.fullmatch(name.strip()) and name.strip() not in _VALUED:
            addressed = name.strip()
        else:
            rule = part if name.strip() in _VALUED else name
        if addressed in {"*", agent.lower()}:
            yield rule
