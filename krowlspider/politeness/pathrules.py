"""The rules of a robots.txt group, matched against paths: RFC 9309, sections 2.2.2 and 2.2.3."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Work of one verdict on patterns with a "*", in units of 0.25 ns: 2.5 ms. At worst `str.find`
# compares a text at every place of the path, which costs _PLACE and one for each character.
WORK_MAX = 10_000_000
_PLACE = 16
_PART = 600
# Up to so many patterns with a "*" are all tried. Of more, only those are tried whose key, a part
# of their text of so many characters, is in the path.
_FEW = 16
_KEY = 3
# Patterns with a "*" that one verdict tries at most, in 1.5 ms.
CANDIDATES_MAX = 3000
# What is always escaped, and escapes that may have another spelling.
_ESCAPED = {code: f"%{code:02X}" for code in (*range(0x21), *range(0x7F, 0x100))}
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
    if " " in text or not (text.isascii() and text.isprintable()):
        text = text.encode().decode("latin-1").translate(_ESCAPED)
    return _ESCAPE.sub(_spell, text) if "%" in text else text


# A pattern with a "*": rank, number, characters that it needs at least, its longest text, whether
# it must reach the end of the path, and the texts between the "*".
_Wild = tuple[int, int, int, str, bool, tuple[str, ...]]


class PathRules:
    """Patterns as they were written, and whether each allows what it matches.

    The pattern with the most octets that matches decides, one that allows among equals. So each has
    a *rank*, twice its octets and one more if it allows: the highest decides, and an odd one
    allows.
    """

    __slots__ = ("_exact", "_heads", "_keyed", "_lengths", "_prefixes", "_wild", "size")

    def __init__(self, rules: Mapping[str, bool]):
        self._prefixes: dict[str, int] = {}
        self._exact: dict[str, int] = {}
        self._wild: list[_Wild] = []
        for pattern, allow in rules.items():
            self._add(pattern, allow)
        self._heads = tuple(self._prefixes)
        self._lengths = sorted(set(map(len, self._heads)))
        # Patterns kept in memory.
        self.size = len(self._prefixes) + len(self._exact) + len(self._wild)
        self._keyed: dict[str, list[_Wild]] | None = None
        if len(self._wild) > _FEW:
            self._give_keys()
        else:
            self._wild.sort(reverse=True)

    def _add(self, pattern: str, allow: bool) -> None:
        anchored = pattern[-1:] == "$"
        body = spelt(pattern[:-1] if anchored else pattern)
        rank = 2 * (len(body) + anchored) + allow
        if "*" in body and (anchored or "*" in body.rstrip("*")):
            parts = body.split("*")
            least = len(body) - len(parts) + 1
            if "**" in body:
                parts[1:-1] = filter(None, parts[1:-1])
            text = max(parts, key=len)
            self._wild.append((rank, -len(self._wild), least, text, anchored, tuple(parts)))
            return
        ranks = self._exact if anchored else self._prefixes
        body = body.rstrip("*")
        if ranks.get(body, 0) < rank:
            ranks[body] = rank

    def _give_keys(self) -> None:
        """Index the patterns by key: the rarer end of the longest text. Short texts have none."""
        heads = Counter([rule[3][:_KEY] for rule in self._wild])
        tails = Counter([rule[3][-_KEY:] for rule in self._wild])
        keyed: defaultdict[str, list[_Wild]] = defaultdict(list)
        keyless = []
        for rule in self._wild:
            head, tail = rule[3][:_KEY], rule[3][-_KEY:]
            if len(head) < _KEY:
                keyless.append(rule)
            else:
                keyed[head if heads[head] <= tails[tail] else tail].append(rule)
        self._keyed, self._wild = dict(keyed), keyless

    def allow(self, path: str) -> bool | None:
        """Whether they allow a path, with its query, of a normalised URL.

        None when it would take more than WORK_MAX to decide: then it is not to be fetched.
        """
        if "%" in path or "*" in path:
            path = spelt(path).replace("*", _STAR)
        best = self._exact.get(path, 0) if self._exact else 0
        if path.startswith(self._heads):
            ranks = self._prefixes
            for length in self._lengths:
                if (text := path[:length]) in ranks and ranks[text] > best:
                    best = ranks[text]
        if self._wild or self._keyed:
            best = self._try_wild(path, best)
        return None if best == _UNDECIDED else best == 0 or best % 2 == 1

    def _try_wild(self, path: str, best: int) -> int:
        """The highest rank that matches, ``best`` being that of the patterns without "*"."""
        wild = self._wild if self._keyed is None else self._candidates(path, self._keyed)
        if len(wild) > CANDIDATES_MAX:
            return _UNDECIDED
        length, work = len(path), WORK_MAX
        for rank, _, least, text, anchored, parts in wild:
            if rank < best:
                break
            if least <= length and path.startswith(parts[0]):
                work -= (_PLACE + len(text)) * length + _PART * len(parts)
                if work < 0:
                    return _UNDECIDED
                if _follow(path, parts, anchored):
                    return rank
        return best

    def _candidates(self, path: str, keyed: dict[str, list[_Wild]]) -> list[_Wild]:
        """The patterns with a "*" that may match, highest rank first; unsorted when too many."""
        found = self._wild.copy()
        for key in keyed.keys() & {path[at : at + _KEY] for at in range(len(path))}:
            found += keyed[key]
            if len(found) > CANDIDATES_MAX:
                return found
        found.sort(reverse=True)
        return found


# In place of a rank.
_UNDECIDED = -1


def _follow(path: str, parts: tuple[str, ...], anchored: bool) -> bool:
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
