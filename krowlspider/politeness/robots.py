"""Apply robots.txt by RFC 9309, and match its rules against paths.

Apply robots.txt by RFC 9309, and tolerate the common mistakes in such files. The results are those
of Google's parser. The differences from it, and their reasons, are in
tests/politeness/test_robots_google.py. `deciding_line` shows a person which line decides.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Self

from krowlspider.urls.robots_groups import (
    ALL,
    ALLOW,
    BODY_MAX,
    CRAWL_DELAY,
    DISALLOW,
    SITEMAP,
    groups_in,
    text_of,
    token_in,
)

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


class Ruling(Enum):
    """The meaning of the status of a robots.txt response: RFC 9309, section 2.3.1.

    RETRY disallows everything until a later fetch gets another ruling.
    """

    RULES = "rules"
    REDIRECT = "redirect"
    ALLOW_ALL = "allow_all"
    RETRY = "retry"


_FIRST_HTTP = 100
# By the first digit.
_OF_GEMINI = {2: Ruling.RULES, 3: Ruling.REDIRECT, 4: Ruling.RETRY}


def judge(status: int) -> Ruling:
    """Return the ruling for an HTTP status.

    429 is RETRY: it is throttling by the host, and does not mean that the site has no robots.txt.
    Of Gemini's statuses, with two digits, 4x means the same; 1x, 5x and 6x mean that there is none.
    """
    if status < _FIRST_HTTP:
        return _OF_GEMINI.get(status // 10, Ruling.ALLOW_ALL if status else Ruling.RETRY)
    if 200 <= status < 300:
        return Ruling.RULES
    if 300 <= status < 400:
        return Ruling.REDIRECT
    if 400 <= status < 500 and status != 429:
        return Ruling.ALLOW_ALL
    return Ruling.RETRY


@dataclass(slots=True, eq=False)
class _Group:
    """The merged rules of all groups for one product token."""

    rules: dict[str, bool] = field(default_factory=dict)
    crawl_delay: float | None = None

    def add(self, kind: str, value: str) -> None:
        if kind == ALLOW:
            self.rules[value] = True
        elif kind == DISALLOW:
            self.rules.setdefault(value, False)
        elif kind == CRAWL_DELAY:
            self.crawl_delay = _longer(value, self.crawl_delay)


def _read(body: bytes, token: str) -> tuple[dict[str, _Group], list[str]]:
    """Return the groups for ``token`` and ``*``, those that exist, and the sitemaps."""
    groups: dict[str, _Group] = {}
    sitemaps: list[str] = []
    wanted = {token, ALL}
    for agents, lines in groups_in(body):
        ours = [groups.setdefault(agent, _Group()) for agent in agents & wanted]
        for kind, raw_value in lines:
            if kind == SITEMAP:
                if place := text_of(raw_value):
                    sitemaps.append(place)
            elif ours and (value := text_of(raw_value)):
                for group in ours:
                    group.add(kind, value)
    return groups, sitemaps


def _read_for(body: bytes, agent: str) -> tuple[_Group, list[str]]:
    """Return the group that applies to a product token, and the sitemaps, of a body of any
    bytes."""
    token = token_in(agent)
    groups, sitemaps = _read(body, token)
    return groups.get(token) or groups.get(ALL) or _Group(), sitemaps


def rules_for(body: bytes, agent: str) -> dict[str, bool]:
    """Return the patterns that apply to a product token, each with whether it allows."""
    return _read_for(body, agent)[0].rules


def _longer(value: str, known: float | None) -> float | None:
    """Return the longer of a delay, if the text is a valid one, and the delay known before."""
    try:
        delay = float(value)
    except ValueError:
        return known
    if not (math.isfinite(delay) and delay >= 0):
        return known
    return delay if known is None else max(delay, known)


# Characters of a text, and wildcards, that count as one more unit of 200 bytes in memory.
_SIZED = 200
_WILDCARDS_SIZED = 2


class RobotsRules:
    """The rules of one authority for one product token."""

    __slots__ = ("_rules", "crawl_delay", "sitemaps", "size")

    def __init__(self, rules: dict[str, bool], crawl_delay: float | None, sitemaps: list[str]):
        self._rules = PathRules(rules) if rules else None
        # Seconds, the longest that the group asks for; None when it asks for no valid delay.
        self.crawl_delay = crawl_delay
        # As written, with repeats, neither normalised nor checked.
        self.sitemaps = sitemaps
        # Memory in units of 200 bytes.
        texts = [*rules, *sitemaps]
        self.size = (
            len(texts)
            + sum([len(text) // _SIZED for text in texts])
            + "".join(rules).count("*") // _WILDCARDS_SIZED
        )

    @classmethod
    def parse(cls, body: bytes, agent: str) -> Self:
        """Parse a robots.txt body of any bytes. ``agent`` is the product token of the crawler."""
        group, sitemaps = _read_for(body, agent)
        return cls(group.rules, group.crawl_delay, sitemaps)

    @classmethod
    def allow_all(cls) -> Self:
        """Return the rules of a site without robots.txt."""
        return cls({}, None, [])

    def allowed(self, url: str) -> bool | None:
        """Return whether a normalised URL may be fetched; /robots.txt itself always may.

        None means no: deciding would take too long.
        """
        if self._rules is None:
            return True
        path = url[url.index("/", 8) :]
        return path == "/robots.txt" or self._rules.allow(path)


# The zlib level. At the default level some bodies of 500 KiB hold the event loop too long.
_LEVEL = 1


@lru_cache(1)
def _compress(body: bytes) -> bytes:
    """Return the compressed body. The cache serves many hosts that redirect to one robots.txt."""
    return zlib.compress(body[: BODY_MAX + 1], _LEVEL)


def _decompress(data: bytes) -> bytes:
    """Return the body that `_compress` kept.

    :raises zlib.error: ``data`` is anything else
    """
    inflate = zlib.decompressobj()
    body = inflate.decompress(data, BODY_MAX + 1)
    if not inflate.eof and len(body) <= BODY_MAX:
        raise zlib.error("cut off")
    return body


# Version of the encoded record. Records of other versions are refused.
_VERSION = 1


@dataclass(slots=True)
class RobotsRecord:
    """The result of fetching the robots.txt of an authority, stored on disk.

    ``ruling`` is a value of Ruling. ``fetched`` and ``expires`` are epoch seconds. ``status`` is
    the HTTP status, or 0 without a response. ``body`` is as received.
    """

    ruling: str
    fetched: float
    expires: float
    status: int
    body: bytes

    def encode(self) -> bytes:
        """Return a line of JSON, then the compressed body, cut one byte past what is parsed."""
        head = [_VERSION, self.ruling, self.fetched, self.expires, self.status]
        return json.dumps(head).encode() + b"\n" + _compress(self.body)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the record that `encode` wrote.

        :raises ValueError: ``data`` is anything else
        """
        head, _, body = data.partition(b"\n")
        try:
            version, ruling, fetched, expires, status = json.loads(head)
            record = cls(Ruling(ruling).value, float(fetched), float(expires), int(status), b"")
            if version != _VERSION:
                raise ValueError(f"version {version}")
            record.body = _decompress(body)
        except (ValueError, TypeError, OverflowError, zlib.error) as e:
            raise ValueError(f"not a robots record: {e}") from e
        return record


# A file with more rules is not searched: that would hold the event loop for over 20 ms.
RULES_MAX = 5000
# Lines with the same rule that are tried.
_TRIED = 10


class RobotsLine(NamedTuple):
    """A line of a robots.txt; ``number`` counts from 1."""

    number: int
    text: str


def deciding_line(body: bytes, agent: str, url: str) -> RobotsLine | None:
    """Return the line whose rule decides whether the product token ``agent`` may fetch ``url``.

    It is the longest pattern that matches, and an allowing one among equals: RFC 9309, section
    2.2.2. Return None if no rule matches, the file has more than RULES_MAX rules, or the rule is on
    no line of its bytes.
    """
    rules = rules_for(body, agent)
    path = url[url.index("/", 8) :]
    if len(rules) > RULES_MAX:
        return None
    matching = [pattern for pattern in rules if PathRules({pattern: False}).allow(path) is False]
    if not matching:
        return None
    decides = max(matching, key=lambda pattern: (len(spelt(pattern)), rules[pattern]))
    lines = body.splitlines()
    found = [at for at, line in enumerate(lines) if _has(line, decides, allows=rules[decides])]
    if not found:
        # The lines of UTF-16, for one, are not those of the body's bytes.
        return None
    at = found[0]
    if len(found) > 1:
        # The rule stands in the groups of other crawlers too: without its own line, it is gone.
        own = (at for at in found[:_TRIED] if rules_for(_without(lines, at), agent) != rules)
        at = next(own, at)
    return RobotsLine(at + 1, lines[at].decode(errors="replace").strip())


def _has(line: bytes, pattern: str, *, allows: bool) -> bool:
    """Return whether a line has this rule."""
    # Most lines have not even its text.
    if pattern.encode() not in line and pattern.encode("latin-1", "replace") not in line:
        return False
    return rules_for(b"User-agent: *\n" + line, "") == {pattern: allows}


def _without(lines: list[bytes], at: int) -> bytes:
    return b"\n".join([*lines[:at], b"", *lines[at + 1 :]])
