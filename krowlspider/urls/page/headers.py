"""Read HTTP headers that concern crawlers: Link (RFC 8288), Refresh, X-Robots-Tag, URLs in any."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from krowlspider.urls.canonical import normalise, normalise_all
from krowlspider.urls.page.queries import encode_queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
