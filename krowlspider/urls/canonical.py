"""The normal form of a URL, its identity, and bounds on the length of what is parsed.

Every URL is parsed by ada (WHATWG URL Standard). The normal form is fetched. The identity ignores
tracking parameters, session ids, the order of parameters and the case of escapes. It only decides
whether a URL has been seen: `identity` returns its text, `IdentityHasher` its 8 bytes.

IDNA processing takes time quadratic in the length of a host; the rest of a URL takes linear time.
So references are bounded before they are parsed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

import can_ada
import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Characters of a reference without its fragment: eight times URLLENGTH_LIMIT, as parsing removes
# spaces, line ends and dot segments.
REFERENCE_MAX = 16 * 1024
# Characters of a seed, of a URL that another node sends, and of the base of a document: each joined
# reference may be as long as its base. No longer URL is queued by default.
URL_MAX = 2048
# Characters of a non-ASCII authority, percent-decoded: a name has at most 253, and a root dot and a
# port may follow.
AUTHORITY_MAX = 253 + len(".:65535")
# Characters that the wide authorities of a page may have together, 15 for each of 10,000 links. An
# authority is wide if it is non-ASCII, percent-encoded or longer than AUTHORITY_MAX.
WIDE_MAX = 150_000

# The authority of a reference, after a scheme or two slashes; tabs and line ends are ignored. If a
# path follows the scheme instead, its first segment is taken as the authority.
_AUTHORITY = re.compile(
    r"[\0- ]*+(?:[A-Za-z][A-Za-z0-9+.\t\n\r-]*+:[/\\\t\n\r]*+|[/\\][\t\n\r]*+[/\\][/\\\t\n\r]*+)"
    r"([^/\\?#]*+)"
)


def fits(reference: str) -> bool:
    """Return whether a reference, or a URL parsed from one, is short enough to be parsed."""
    short = len(reference) <= AUTHORITY_MAX and reference.isascii()
    return short or _width(reference, WIDE_MAX) is not None


def fitting(references: Iterable[str], oversize: list[str]) -> list[str]:
    """Return the references of a page that may be parsed, and add the others to ``oversize``.

    The references share one room of WIDE_MAX characters for their wide authorities.
    """
    found, room = [], WIDE_MAX
    for reference in references:
        if len(reference) > AUTHORITY_MAX or not reference.isascii():
            width = _width(reference, room)
            if width is None:
                oversize.append(reference)
                continue
            room -= width
        found.append(reference)
    return found


def queued_max(limit: int) -> int:
    """Return the most characters of a URL that is queued. ``limit`` is URLLENGTH_LIMIT.

    0 means no limit, as in Scrapy, but a URL longer than REFERENCE_MAX would not be parsed on a
    retry.
    """
    return min(limit or REFERENCE_MAX, REFERENCE_MAX)


def _width(reference: str, room: int) -> int | None:
    """Return how much of a page's room a reference takes; None if it must not be parsed."""
    if len(reference) > REFERENCE_MAX and "#" not in reference[: REFERENCE_MAX + 1]:
        return None
    found = _AUTHORITY.match(reference, 0, REFERENCE_MAX)
    if found is None:
        return 0
    authority = found[1]
    width = len(authority)
    if "%" in authority or not authority.isascii():
        return width if width <= room and len(unquote(authority)) <= AUTHORITY_MAX else None
    if width <= AUTHORITY_MAX:
        return 0
    # A non-ASCII name can be this long in its ASCII form, and even REFERENCE_MAX characters of
    # ASCII are parsed quickly.
    return width if width <= room else None


# Parameters that track a visitor and never select a page: Google, Meta, Microsoft, HubSpot,
# Mailchimp, Yandex, X, TikTok, LinkedIn, Marketo, Openstat. Not ``ref``, which may select a page.
_TRACKING = (
    *("_ga", "_gl", "dclid", "gbraid", "gclid", "gclsrc", "wbraid"),
    *("fb_action_ids", "fb_action_types", "fb_source", "fbclid", "igshid"),
    *("_hsenc", "_hsmi", "hsa_[^=&]*", "mc_cid", "mc_eid", "mkt_tok", "msclkid", "utm_[^=&]*"),
    *("_openstat", "yclid", "ysclid", "li_fat_id", "ttclid", "twclid"),
)
# Session ids of PHP, Java, ASP, ColdFusion, osCommerce and Zen Cart. Together with _RANDOM, those
# that Heritrix's and the Wayback Machine's canonicalisation remove.
_SESSIONS = (
    *("phpsessid", "jsessionid", "aspsessionid[a-z]*", "cfid", "cftoken", "oscsid", "zenid"),
    # Only a random value. A readable value or a GUID may name a conference session.
    "sess(?:ion)?_?id=(?=[a-z]*[0-9])(?=[0-9]*[a-z])[0-9a-z]{16,}",
)
# "sid" and "s" may also be the number of a story or the hash of a document: only an MD5 counts.
_RANDOM = "s(?:id)?=(?=[a-f]*[0-9])[0-9a-f]{32}"
_TRACKED = re.compile(
    f"&(?:(?:{'|'.join(_TRACKING)}|(?i:{'|'.join(_SESSIONS)}))(?:=[^&]*)?|(?i:{_RANDOM}))(?![^&])"
)
# An escape of RFC 3986, section 2.1, that is not written in upper case, or a "%" of no escape.
_NOT_UPPER = re.compile("%(?![0-9A-F]{2})")
_ESCAPES = re.compile("(?:%[0-9A-Fa-f]{2})+")
_SESSION_IN_PATH = re.compile(r";jsessionid=[^;/]*", re.IGNORECASE)
_SCHEMES = ("https://", "http://")
# References that the parser only appends to the origin, which is cheaper without it: absolute paths
# without dot segments and empty ones, and queries, of characters that are never encoded. Segments
# are not repeated by "++": before Python 3.11.5 a failed repetition is not undone (gh-106052).
_PLAIN = re.compile(
    r"(?:/(?![./])[A-Za-z0-9._~!$&()*+,;=:@-]*+)+(?:\?[A-Za-z0-9._~!$&()*+,;=:@/?-]*+)?+"
)
_LINE_STARTS = ("\nhttps://", "\nhttp://")
# TypeError: the text holds a lone surrogate, so it is not UTF-8.
_UNPARSED = (ValueError, TypeError)


def normalise(url: str, base: str | None = None) -> str | None:
    """Return the absolute http(s) URL, joined to ``base``, WHATWG-normalised, without fragment.

    Return None if the URL does not parse, is too long (see `fits`), has another
    scheme, or contains a user name or password.
    """
    if not fits(url):
        return None
    try:
        parsed = can_ada.parse(url) if base is None else can_ada.parse(base) + url
    except _UNPARSED:
        return None
    return _accept(parsed.href)


def normalise_without_user(url: str, base: str) -> str | None:
    """Return as `normalise` does, but leave out a user name and password."""
    if not fits(url):
        return None
    try:
        parsed = can_ada.parse(base) + url
    except _UNPARSED:
        return None
    parsed.username = parsed.password = ""
    return _accept(parsed.href)


def normalise_all(
    hrefs: Iterable[str],
    base: str,
    refused: list[str] | None = None,
    oversize: list[str] | None = None,
) -> list[str]:
    """Return the ``hrefs`` of a page, normalised as by `normalise`, in order and without repeats.

    Those that `normalise` refuses are left out and added to ``refused``, or to ``oversize`` if they
    are too long. ``base`` is an absolute URL without user name.

    :raises ValueError: ``base`` does not parse
    """
    return list(normalise_each(dict.fromkeys(hrefs, ""), base, refused, oversize))


def normalise_each(
    values: Mapping[str, str],
    base: str,
    refused: list[str] | None = None,
    oversize: list[str] | None = None,
) -> dict[str, str]:
    """Return, by normalised URL, the value of its last href in ``values``.

    Otherwise as `normalise_all`.
    """
    left = [] if refused is None else refused
    parsed = can_ada.parse(base)
    # One check of the joined text is far cheaper than a check of each reference. If it passes, the
    # total length bounds the time to parse them.
    together = "".join(values)
    if len(together) > REFERENCE_MAX or not together.isascii():
        fit = fitting(values, [] if oversize is None else oversize)
        values = {href: values[href] for href in fit}
    origin, plain = parsed.origin, _PLAIN.fullmatch
    try:
        urls = [origin + href if plain(href) else (parsed + href).href for href in values]
    except _UNPARSED:
        urls = [normalise(href, base) or "" for href in values]
    if "#" in together:
        urls = [url[: url.index("#")] if "#" in url else url for url in urls]
    # One check of the joined URLs, too, is cheaper than a call of `_accept` for each.
    lines = "\n".join(["", *urls])
    if "@" not in lines and sum(map(lines.count, _LINE_STARTS)) == len(urls):
        return dict(zip(urls, values.values(), strict=True))
    found: dict[str, str] = {}
    for url, href in zip(urls, values, strict=True):
        if ("@" in url or not url.startswith(_SCHEMES)) and _accept(url) is None:
            left.append(href)
        else:
            found[url] = values[href]
    return found


def _accept(href: str) -> str | None:
    """Return ``href`` without fragment, or None if it is not http(s) or contains a user name.

    ``href`` is serialised by ada, so a '#' starts the fragment and a '/' ends the authority.
    """
    if not href.startswith(_SCHEMES):
        return None
    if "#" in href:
        href = href[: href.index("#")]
    if "@" in href and "@" in href[: href.index("/", 8)]:
        return None
    return href


def identity(url: str) -> str:
    """Return the identity of a normalised URL: the text by which a URL counts as seen.

    Tracking parameters and session ids are removed, and parameters are sorted by name. Parameters
    of the same name keep their order. The hexadecimal digits of escapes are upper-case (RFC 3986,
    section 6.2.2.1). Which characters are escaped stays as it is. So two URLs that a server can
    distinguish in any other way never share an identity.
    """
    return _significant(_with_upper_escapes(url) if "%" in url else url)


def _with_upper_escapes(text: str) -> str:
    return _ESCAPES.sub(_upper, text) if _NOT_UPPER.search(text) else text


def _upper(escapes: re.Match[str]) -> str:
    return escapes[0].upper()


def _significant(url: str) -> str:
    """Return a URL without tracking parameters and session ids, its parameters sorted by name."""
    path, mark, query = url.partition("?")
    if ";" in path:
        path = _SESSION_IN_PATH.sub("", path)
    if not mark:
        return path
    kept = "&" + query
    # A search that finds nothing takes half the time of a substitution.
    if _TRACKED.search(kept):
        kept = _TRACKED.sub("", kept)
        if not kept:
            return path
    if "&" not in kept[1:]:
        return path + "?" + kept[1:]
    return path + "?" + "&".join(sorted(kept[1:].split("&"), key=_name))


def requisite_identity(url: str) -> str:
    """Return the text by which a normalised URL counts as seen as a requisite.

    It differs from that of the page: a page that another one embeds is still fetched as a page, and
    its links are followed.
    """
    return f"requisite {url}"


def _name(parameter: str) -> str:
    return parameter.partition("=")[0]


class IdentityHasher:
    """Hashes identities to the keys of the seen set; ``seed`` (64 bits) belongs to the job.

    The seed prevents a site from crafting URLs that collide with other URLs in every crawl.

    :raises ValueError: ``seed`` is not a 64-bit number
    """

    def __init__(self, seed: int):
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"the seed must be of 64 bits, not {seed}")
        self._seed = seed

    def key(self, url: str) -> bytes:
        """Return the 8-byte key (xxh3-64, big endian) of a normalised URL."""
        return xxhash.xxh3_64_digest(identity(url).encode(), self._seed)

    def keys(self, urls: Iterable[str]) -> list[bytes]:
        digest, seed = xxhash.xxh3_64_digest, self._seed
        urls = list(urls)
        # One check of the joined URLs is cheaper than one of each; normalised ones have no "\n".
        lines = "\n".join(urls)
        if "%" in lines:
            urls = _with_upper_escapes(lines).split("\n")
        # Most URLs are their own identity, and a call costs as much as the hash.
        return [
            digest((_significant(url) if "?" in url or ";" in url else url).encode(), seed)
            for url in urls
        ]
