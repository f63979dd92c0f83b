"""Find e-mail addresses, with domains in any script too (RFC 6531)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Letters, digits, "_", and the marks on letters of Indic and other scripts, which are no letters.
_LETTER = r"\w\u0300-\u036f\u0900-\u0dff\u0e31-\u0e4e"
# No match starts within a run of its characters, and ++ does not backtrack: a run is read once. An
# apostrophe begins no address, so that quoted ones are found without their quotes.
_ADDRESS = re.compile(
    rf"(?<![{_LETTER}.%+-])(?<!\w['’])[{_LETTER}%+-][{_LETTER}.%+'’-]*+@"
    rf"([{_LETTER}-]{{1,63}}+(?:[.\u3002\uff0e][{_LETTER}-]{{1,63}}+){{1,8}})"
)
_DOT = re.compile("[.\u3002\uff0e]")
# A top-level domain has letters of ASCII, none of ASCII, or is the encoded form of the latter. What
# follows the first without a space is text in another script.
_TOP = re.compile(
    r"xn--[a-z0-9-]{2,59}+$|[a-z]{2,63}+(?![0-9_-])|[^\x00-\x7f]{2,63}+$", re.IGNORECASE
)
_LABEL = re.compile(r"(?!-)[^_]++(?<!-)")
# A remote path of scp or Git: user@host:folder/file, user@host:name.git.
_REMOTE = re.compile(r":~?[\w.-]*+(?:/|(?<=\.git)(?![\w/]))")
# The user of a URL, with a password or without: ssh://git@host/. Addresses of ``mailto:`` have no
# slashes.
_USER = re.compile(r"://[^\s/@]*+$")
_USER_MAX = 200
# Pictures for two pixels a point: icon@2x.png.
_SCALED = re.compile(r"\d(?:\.\d)?x(?:~\w+)?\.(?:png|jpe?g|gif|svg|webp|avif)", re.IGNORECASE)


def find(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each address."""
    if "@" not in text:
        return
    for match in _ADDRESS.finditer(text):
        end = _end_of_domain(match)
        before = text[max(0, match.start() - _USER_MAX) : match.start()]
        if end is None or ("://" in before and _USER.search(before)):
            continue
        if not _REMOTE.match(text, end):
            yield match.start(), end


def _end_of_domain(match: re.Match[str]) -> int | None:
    """Return where the domain ends; None if it is none."""
    domain = match[1]
    *labels, last = _DOT.split(domain)
    top = _TOP.match(last)
    if top is None or not all(map(_LABEL.fullmatch, labels)) or _SCALED.fullmatch(domain):
        return None
    return match.end() - len(last) + top.end()
