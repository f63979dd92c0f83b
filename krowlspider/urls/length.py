"""Which references are parsed: those that are not too long.

IDNA takes time by the square of a host's length: 200,000 characters took 14 s. All else of a URL is
read in linear time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable

# Characters of a reference, its fragment left out: eight times URLLENGTH_LIMIT, for blanks, line
# ends and dot segments that parsing takes away.
REFERENCE_MAX = 16 * 1024
# Characters of an authority outside ASCII, percent-decoded: a name has 253 at most, a root dot and
# a port may follow.
AUTHORITY_MAX = 253 + len(".:65535")
# Characters of authorities outside ASCII, escaped, or longer than that, that are read of a page:
# each takes 0.7 µs at the worst. That is 15 for each of 10,000 links.
WIDE_MAX = 150_000

# The authority of what has one: behind a scheme or two slashes. Tabs and line ends count nowhere.
# Behind a scheme there may be a path instead: then its first segment is taken for it.
_AUTHORITY = re.compile(
    r"[\0- ]*+(?:[A-Za-z][A-Za-z0-9+.\t\n\r-]*+:[/\\\t\n\r]*+|[/\\][\t\n\r]*+[/\\][/\\\t\n\r]*+)"
    r"([^/\\?#]*+)"
)


def fits(reference: str) -> bool:
    """Whether a reference may be parsed. A URL that came of one may, up to REFERENCE_MAX
    characters."""
    short = len(reference) <= AUTHORITY_MAX and reference.isascii()
    return short or _width(reference, WIDE_MAX) is not None


def fitting(references: Iterable[str], oversize: list[str]) -> list[str]:
    """Those references of a page that may be parsed; the others are added to ``oversize``."""
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
    """The characters that its authority takes of a page's room; None for a reference that is not to
    be parsed."""
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
    # A name outside ASCII may be so long in ASCII. 16,384 characters take 2 ms at the worst.
    return width if width <= room else None
