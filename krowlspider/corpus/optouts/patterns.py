"""Pure: patterns of paths, as in robots.txt (RFC 9309, sections 2.2.2 and 2.2.3)."""

from __future__ import annotations

import re
from urllib.parse import quote

_ASCII = "".join(map(chr, range(ord("!"), ord("~") + 1)))
_ENCODED = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")


def path_of(url: str) -> str:
    """Return the path and query of a URL, to be compared with patterns."""
    return _literal(f"/{url.partition('://')[2].partition('/')[2]}").replace("*", "%2A")


def pattern_of(text: str) -> str:
    """Return a pattern, to be compared with paths; "*" and a "$" at its end keep their meaning."""
    return _literal(text.removesuffix("$")) + "$" * text.endswith("$")


def _literal(text: str) -> str:
    """Return ``text`` with each character in one form only: "$" as %24, "~" not as %7E."""
    # JSON may hold half of a character, which has no encoding.
    quoted = quote(text, safe=_ASCII, errors="replace")
    return _ENCODED.sub(_decoded, quoted).replace("$", "%24")


def _decoded(match: re.Match[str]) -> str:
    letter = chr(int(match[1], 16))
    return letter if _UNRESERVED.match(letter) else match[0].upper()


def matches(pattern: str, path: str) -> bool:
    """Return whether a path begins as a pattern says, in linear time."""
    first, *rest = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    place = len(first)
    last = rest.pop() if rest and pattern.endswith("$") else None
    for part in rest:
        place = path.find(part, place)
        if place < 0:
            return False
        place += len(part)
    if last is not None:
        return path.endswith(last) and len(path) - len(last) >= place
    return not pattern.endswith("$") or place == len(path)
