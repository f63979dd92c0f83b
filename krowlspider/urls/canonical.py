"""The normal form of a URL, and its identity.

Every URL is parsed by ada (WHATWG URL Standard). The normal form is what is fetched; the identity,
which ignores tracking, session ids and the order of parameters, only decides what has been seen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import can_ada
import xxhash

from krowlspider.urls.length import REFERENCE_MAX, fits, fitting

if TYPE_CHECKING:
    from collections.abc import Iterable

# Parameters that follow a visitor and never choose a page: Google, Meta, Microsoft, HubSpot,
# Mailchimp, Yandex, X, TikTok, LinkedIn, Marketo, Openstat. ``ref`` is left out: sites choose pages
# by it.
_TRACKING = (
    *("_ga", "_gl", "dclid", "gbraid", "gclid", "gclsrc", "wbraid"),
    *("fb_action_ids", "fb_action_types", "fb_source", "fbclid", "igshid"),
    *("_hsenc", "_hsmi", "hsa_[^=&]*", "mc_cid", "mc_eid", "mkt_tok", "msclkid", "utm_[^=&]*"),
    *("_openstat", "yclid", "ysclid", "li_fat_id", "ttclid", "twclid"),
)
# Names of session ids, whatever their value: PHP, Java, ASP, ColdFusion, osCommerce, Zen Cart. With
# _RANDOM, those that Heritrix's and the Wayback Machine's canonicalisation leave out.
_SESSIONS = (
    *("phpsessid", "jsessionid", "aspsessionid[a-z]*", "cfid", "cftoken", "oscsid", "zenid"),
    # Not what may be read, nor a GUID: sites name their talks so.
    "sess(?:ion)?_?id=(?=[a-z]*[0-9])(?=[0-9]*[a-z])[0-9a-z]{16,}",
)
# "sid" and "s" may as well be the number of a story, or the hash of a document: only an MD5 is a session.
_RANDOM = "s(?:id)?=(?=[a-f]*[0-9])[0-9a-f]{32}"
_TRACKED = re.compile(
    f"&(?:(?:{'|'.join(_TRACKING)}|(?i:{'|'.join(_SESSIONS)}))(?:=[^&]*)?|(?i:{_RANDOM}))(?![^&])"
)
_SESSION_IN_PATH = re.compile(r";jsessionid=[^;/]*", re.IGNORECASE)
_SCHEMES = ("https://", "http://")


def normalise(url: str, base: str | None = None) -> str | None:
    """The absolute http(s) URL, WHATWG-normalised, without fragment, joined to ``base`` if given.

    None when it does not parse, is too long (see `krowlspider.urls.length`), has another scheme, or
    carries a user name or password.
    """
    if not fits(url):
        return None
    try:
        parsed = can_ada.parse(url) if base is None else can_ada.parse(base) + url
    except (
        ValueError,
        TypeError,
    ):  # TypeError: the text holds a lone surrogate, so it is not UTF-8
        return None
    return _accept(parsed.href)


def normalise_all(
    hrefs: Iterable[str],
    base: str,
    refused: list[str] | None = None,
    oversize: list[str] | None = None,
) -> list[str]:
    """What `normalise` makes of a page's ``hrefs``, in order, without repeats and those it refuses,
    which are added to
    ``refused``, or to ``oversize`` if they are too long.

    ``base`` is an absolute URL; ValueError when it does not parse.
    """
    left = [] if refused is None else refused
    parsed = can_ada.parse(base)
    found: dict[str, None] = {}
    different: Iterable[str] = dict.fromkeys(hrefs)
    # To join them takes a hundredth of what follows, to look at each five times as long. The worst
    # that passes takes 5 ms.
    together = "".join(different)
    if len(together) > REFERENCE_MAX or not together.isascii():
        different = fitting(different, [] if oversize is None else oversize)
    for href in different:
        try:
            url = (parsed + href).href
        except (ValueError, TypeError):
            left.append(href)
            continue
        if "#" in url:
            url = url[: url.index("#")]
        # As `_accept`, which nearly none need be asked.
        if "@" in url or not url.startswith(_SCHEMES):
            accepted = _accept(url)
            if accepted is None:
                left.append(href)
                continue
        found[url] = None
    return list(found)


def _accept(href: str) -> str | None:
    """``href`` is serialised by ada, so a '#' starts the fragment and a '/' ends the authority."""
    if not href.startswith(_SCHEMES):
        return None
    if "#" in href:
        href = href[: href.index("#")]
    if "@" in href and "@" in href[: href.index("/", 8)]:
        return None
    return href


def identity(url: str) -> str:
    """The text by which a normalised URL is known: without tracking and session ids, parameters
    sorted by name.

    Parameters of one name keep their order, and blanks and percent-encoding stay as they are, so
    two URLs that a server could tell apart, but for these and the order of names, are never one.
    """
    path, mark, query = url.partition("?")
    if ";" in path:
        path = _SESSION_IN_PATH.sub("", path)
    if not mark:
        return path
    kept = _TRACKED.sub("", "&" + query)
    if not kept:
        return path
    if "&" not in kept[1:]:
        return path + "?" + kept[1:]
    return path + "?" + "&".join(sorted(kept[1:].split("&"), key=_name))


def _name(parameter: str) -> str:
    return parameter.partition("=")[0]


class IdentityHasher:
    """Hashes identities to the keys of the seen set; ``seed`` (64 bits) belongs to the job.

    The seed keeps a site from crafting URLs that collide with others' in every crawl.
    """

    def __init__(self, seed: int):
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"the seed must be of 64 bits, not {seed}")
        self._seed = seed

    def key(self, url: str) -> bytes:
        """The 8-byte key (xxh3-64, big endian) of a normalised URL. http and https differ."""
        return xxhash.xxh3_64_digest(identity(url).encode(), self._seed)

    def keys(self, urls: Iterable[str]) -> list[bytes]:
        """`key` of each."""
        digest, seed = xxhash.xxh3_64_digest, self._seed
        # Most have nothing that `identity` would leave out, and a call takes as long as to hash them.
        return [
            digest((identity(url) if "?" in url or ";" in url else url).encode(), seed)
            for url in urls
        ]
