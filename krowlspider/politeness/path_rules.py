"""Match the rules of a robots.txt group against paths: RFC 9309, sections 2.2.2 and 2.2.3."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Work of one verdict on patterns with "*", in units of 0.25 ns: 2.5 ms. In the worst case
# `str.find` compares at every place: _PLACE and one for each character of the text.
WORK_MAX = 10_000_000
_PLACE = 16
_PART = 600
# Up to this many patterns with "*" are all tried. Of more, a pattern with a key is tried only if
# its key, _KEY characters of its longest text, is in the path.
_FEW = 16
_KEY = 3
# The most patterns with "*" that one verdict tries: about 1.5 ms.
CANDIDATES_MAX = 3000
# Bytes that are always escaped, and escapes that may have another spelling.
_ESCAPED = {code: f"%{code:02X}" for code in (*range(0x21), *range(0x7F, 0x100))}
_ESCAPE = re.compile(r"%(?:[2-7][0-9A-Fa-f]|[01][a-f]|[89A-F][a-f]|[a-f][0-9A-Fa-f])")
_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
# Replaces a literal "*": one in a path, or an escaped one in a pattern. It is no wildcard.
_STAR = "\x01"


def _spelling(code: int) -> str:
    if chr(code) == "*":
        return _STAR
    # A "/" divides a path and a "%" begins an escape, but their escaped forms do not.
    return chr(code) if chr(code) in _VISIBLE and code not in b"%/" else f"%{code:02X}"


_SPELLINGS = {f"%{code:02X}": _spelling(code) for code in range(256)}


def _spell(found: re.Match[str]) -> str:
    return _SPELLINGS[found[0].upper()]


def spelt(text: str) -> str:
    """Return a pattern or path in the spelling used to compare them: RFC 9309, section 2.2.2.

    Visible ASCII stands as it is; all else is percent-encoded in upper case. The RFC encodes the
    reserved characters of RFC 3986, and this function decodes them. Either way both spellings
    become one, except those of "/": "%2F" is another character, as for Google's parser. So the
    RFC's example of a URL in a query does not match in its other spelling.
    """
    if " " in text or not (text.isascii() and text.isprintable()):
        text = text.encode().decode("latin-1").translate(_ESCAPED)
    return _ESCAPE.sub(_spell, text) if "%" in text else text


# A pattern with "*": rank, negated order number, least length of a matching path, longest text,
# whether it must reach the end of the path, and the texts between the "*".
_Wild = tuple[int, int, int, str, bool, tuple[str, ...]]


class PathRules:
    """Patterns as written in robots.txt, each with whether it allows what it matches.

    The matching pattern with the most octets decides; among equals, one that allows. So each
    pattern has a *rank*: twice its octets, plus one if it allows. The highest rank decides, and an
    odd rank allows.
    """

    __slots__ = ("_exact", "_heads", "_keyed", "_lengths", "_prefixes", "_wild")

    def __init__(self, rules: Mapping[str, bool]):
        self._prefixes: dict[str, int] = {}
        self._exact: dict[str, int] = {}
        self._wild: list[_Wild] = []
        for pattern, allow in rules.items():
            self._add(pattern, allow)
        self._heads = tuple(self._prefixes)
        self._lengths = sorted(set(map(len, self._heads)))
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
        """Index the patterns by key: the rarer end of the longest text; a short one has no key."""
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
        """Return whether the rules allow the path, with its query, of a normalised URL.

        None means no: deciding would need more than ``WORK_MAX`` or ``CANDIDATES_MAX``.
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
        """Return the highest rank that matches, or _UNDECIDED; others match with ``best``."""
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
        """Return the patterns with "*" that may match, highest rank first, or too many of them."""
        found = self._wild.copy()
        for key in keyed.keys() & {path[at : at + _KEY] for at in range(len(path))}:
            found += keyed[key]
            if len(found) > CANDIDATES_MAX:
                return found
        found.sort(reverse=True)
        return found


# Stands for a rank when the work to decide exceeds its bound.
_UNDECIDED = -1


def _follow(path: str, parts: tuple[str, ...], anchored: bool) -> bool:
    """Return whether the parts of a pattern are in ``path`` in order, the first at its start."""
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
