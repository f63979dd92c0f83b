"""Bounds on the length of references that are parsed, and of URLs that are queued.

IDNA processing takes time quadratic in the length of a host; the rest of a URL takes linear time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def queued_max(limit: int) -> int:
    """Return the most characters of a URL that is queued. ``limit`` is URLLENGTH_LIMIT.

    0 means no limit, as in Scrapy, but a URL longer than REFERENCE_MAX would not be parsed on a
    retry.
    """
    return min(limit or REFERENCE_MAX, REFERENCE_MAX)


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
