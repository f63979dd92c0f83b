"""The rules of a robots.txt group, matched against paths: RFC 9309, sections 2.2.2 and 2.2.3."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

# What one verdict may cost: characters of the path and _LOOK more, times those of each text looked
# for behind a "*" and _LOOK more. 10 ms; a hundred such rules and a common URL cost a thousandth.
WORK_MAX = 300_000_000
_LOOK = 40
# What is always escaped, and escapes that may have another spelling.
_HIDDEN = re.compile(r"[^!-~]")
_ESCAPE = re.compile(r"%(?:[2-7][0-9A-Fa-f]|[01][a-f]|[89A-F][a-f]|[a-f][0-9A-Fa-f])")
_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
# What a "*" of a path, and an escaped one of a pattern, is compared as: no "*" that is anything.
_STAR = "\x01"


def _spelling(code: int) -> str:
    if chr(code) == "*":
        return _STAR
    # A "/" divides a path and a "%" begins an escape: not so their escapes.
    return chr(code) if chr(code) in _VISIBLE and code not in b"%/" else f"%{code:02X}"


_SPELLINGS = {f"%{code:02X}": _spelling(code) for code in range(256)}


def _spell(found: re.Match[str]) -> str:
    return _SPELLINGS[found[0].upper()]


def spelt(text: str) -> str:
    """A pattern or path in the spelling in which they are compared: RFC 9309, section 2.2.2.

    Visible ASCII stands as it is, all else is escaped in upper case. The RFC escapes what RFC 3986
    reserves, where this unescapes it: either makes the two spellings one.
    """
    if _HIDDEN.search(text):
        text = quote(text, safe=_VISIBLE)
    return _ESCAPE.sub(_spell, text) if "%" in text else text


class PathRules:
    """Patterns as they were written, and whether each allows what it matches.

    The pattern with the most octets that matches decides, one that allows among equals. So each has
    a *rank*, twice its octets and one more if it allows: the highest decides, and an odd one
    allows.
    """

    __slots__ = ("_exact", "_heads", "_lengths", "_prefixes", "_wild", "size")

    def __init__(self, rules: Mapping[str, bool]):
        self._prefixes: dict[str, int] = {}
        self._exact: dict[str, int] = {}
        # Rank, cost, whether the end of the path must be reached, and the texts between the "*".
        self._wild: list[tuple[int, int, bool, list[str]]] = []
        for pattern, allow in rules.items():
            self._add(pattern, allow)
        self._wild.sort(reverse=True)
        self._heads = tuple(self._prefixes)
        self._lengths = sorted(set(map(len, self._heads)))
        # Patterns kept in memory.
        self.size = len(self._prefixes) + len(self._exact) + len(self._wild)

    def _add(self, pattern: str, allow: bool) -> None:
        anchored = pattern.endswith("$")
        body = spelt(pattern[:-1] if anchored else pattern)
        rank = 2 * (len(body) + anchored) + allow
        if anchored and "*" not in body:
            self._exact[body] = max(rank, self._exact.get(body, 0))
        elif not anchored and "*" not in (prefix := body.rstrip("*")):
            self._prefixes[prefix] = max(rank, self._prefixes.get(prefix, 0))
        else:
            head, *middle, last = body.split("*")
            parts = [head, *filter(None, middle), last]
            cost = len(body) + _LOOK * len(parts)
            self._wild.append((rank, cost, anchored, parts))

    def allow(self, path: str) -> bool:
        """Whether they allow a path, with its query, of a normalised URL.

        What costs more than WORK_MAX is disallowed: it cannot be obeyed in time.
        """
        if "%" in path or "*" in path:
            path = spelt(path).replace("*", _STAR)
        best = self._exact.get(path, 0) if self._exact else 0
        if path.startswith(self._heads):
            ranks = self._prefixes
            for length in self._lengths:
                if (text := path[:length]) in ranks and ranks[text] > best:
                    best = ranks[text]
        if self._wild:
            best = self._try_wild(path, best)
        return best == 0 or best % 2 == 1

    def _try_wild(self, path: str, best: int) -> int:
        """The highest rank that matches, ``best`` being that of the patterns without "*"."""
        work = WORK_MAX // (len(path) + _LOOK)
        for rank, cost, anchored, parts in self._wild:
            if rank < best:
                break
            if path.startswith(parts[0]):
                work -= cost
                if work < 0:
                    return _TOO_MUCH
                if _follow(path, parts, anchored):
                    return rank
        return best


# An even rank, which disallows.
_TOO_MUCH = 2


def _follow(path: str, parts: list[str], anchored: bool) -> bool:
    """Whether the parts of a pattern, the first of which begins the path, follow one another."""
    at = len(parts[0])
    for part in parts[1:-1]:
        at = path.find(part, at)
        if at < 0:
            return False
        at += len(part)
    last = parts[-1]
    if anchored:
        return len(path) - len(last) >= at and path.endswith(last)
    return path.find(last, at) >= 0
