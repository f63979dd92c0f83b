"""Parse robots.txt by RFC 9309, and tolerate the common mistakes in such files.

Lines are read as Google's parser reads them, because site owners know its results. It accepts a
missing colon, a misspelt name and a name with extra letters. The differences from it, and their
reasons, are in tests/politeness/test_robots_google.py.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Self

from krowlspider.politeness.path_rules import PathRules

# Bytes of a robots.txt that are parsed. RFC 9309, section 2.5, requires at least 500 KiB.
BODY_MAX = 500 * 1024


class Ruling(Enum):
    """The meaning of the status of a robots.txt response: RFC 9309, section 2.3.1.

    RETRY disallows everything until a later fetch gets another ruling.
    """

    RULES = "rules"
    REDIRECT = "redirect"
    ALLOW_ALL = "allow_all"
    RETRY = "retry"


def judge(status: int) -> Ruling:
    """Return the ruling for an HTTP status.

    429 is RETRY: it is throttling by the host, and does not mean that the site has no robots.txt.
    """
    if 200 <= status < 300:
        return Ruling.RULES
    if 300 <= status < 400:
        return Ruling.REDIRECT
    if 400 <= status < 500 and status != 429:
        return Ruling.ALLOW_ALL
    return Ruling.RETRY


# Name and value of each known line. Text ends at LF, "#" or NUL. The name may have a suffix
# ("Allowed:"). Without a colon, or with one only in the value, the value is one word.
_LINES = re.compile(
    rb"^[ \t\v\f]*+"
    rb"(user[ -]?agent|allow|disallow|dissallow|dissalow|disalow|diasllow|disallaw"
    rb"|crawl[ -]delay|request[ -]rate|visit[ -]time|sitemap|site-map)"
    rb"(?:[^\s:#\0]*+[ \t]++"
    rb"(?=(?:[^\s:#\0]++|(?:[/*]|https?:)[^\s#\0]*+)[ \t\v\f]*+(?:[\n#\0]|\Z))"
    rb"|[^\n:#\0]*+:)"
    rb"([^\n#\0]*+)",
    re.IGNORECASE | re.MULTILINE,
)
# RFC 9309, section 2.2.1: a product token has letters, "_" and "-"; the rest is ignored.
_TOKEN = re.compile(r"[A-Za-z_-]+|\*(?=\s|$)")
_ALL = "*"
# A UTF-8 byte order mark, complete or truncated.
_BOM = re.compile(rb"\A\xef(?:\xbb\xbf?)?")
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(slots=True, eq=False)
class _Group:
    """The merged rules of all groups for one product token."""

    rules: dict[str, bool] = field(default_factory=dict)
    crawl_delay: float | None = None

    def add(self, name: bytes, value: str) -> None:
        if name == b"allow":
            self.rules[value] = True
        elif name.startswith(b"di"):
            self.rules.setdefault(value, False)
        elif name.startswith(b"crawl"):
            self.crawl_delay = _seconds(value, self.crawl_delay)


def _read(body: bytes, token: str) -> tuple[dict[str, _Group], list[str]]:
    """Return the groups for ``token`` and ``*``, those that exist, and the sitemaps.

    A crawl delay, request rate or visit time ends the list of user agents of a group, as a rule
    does. The authors of such files mean it so. RFC 9309, section 2.2.4, does not: by it, the rules
    of the next group count for these user agents too, and an Allow there may free them from a rule.
    """
    groups: dict[str, _Group] = {}
    sitemaps: list[str] = []
    current: list[_Group] = []
    closed = False
    for raw_name, raw_value in _LINES.findall(body):
        name = raw_name.lower()
        if name.startswith(b"user"):
            if closed:
                current, closed = [], False
            agent = _token(_text(raw_value))
            if agent in {token, _ALL}:
                group = groups.setdefault(agent, _Group())
                # Not twice for a repeated name: each rule is added to each group of the list.
                if group not in current:
                    current.append(group)
        elif name.startswith(b"site"):
            if place := _text(raw_value):
                sitemaps.append(place)
        else:
            closed = True
            if current and (value := _text(raw_value)):
                for group in current:
                    group.add(name, value)
    return groups, sitemaps


def _read_for(body: bytes, agent: str) -> tuple[_Group, list[str]]:
    """Return the group that applies to a product token, and the sitemaps, of a body of any
    bytes."""
    token = _token(agent)
    groups, sitemaps = _read(_readable(body), token)
    return groups.get(token) or groups.get(_ALL) or _Group(), sitemaps


def rules_for(body: bytes, agent: str) -> dict[str, bool]:
    """Return the patterns that apply to a product token, each with whether it allows."""
    return _read_for(body, agent)[0].rules


def _text(value: bytes) -> str:
    try:
        return value.decode().strip()
    except UnicodeDecodeError:
        return value.decode("latin-1").strip()


def _token(value: str) -> str:
    found = _TOKEN.match(value)
    return found[0].lower() if found else ""


def _seconds(value: str, otherwise: float | None) -> float | None:
    try:
        delay = float(value)
    except ValueError:
        return otherwise
    return delay if math.isfinite(delay) and delay >= 0 else otherwise


# Characters of a text, and wildcards, that count as one more unit of 200 bytes in memory.
_SIZED = 200
_WILDCARDS_SIZED = 2


class RobotsRules:
    """The rules of one authority for one product token."""

    __slots__ = ("_rules", "crawl_delay", "sitemaps", "size")

    def __init__(self, rules: dict[str, bool], crawl_delay: float | None, sitemaps: list[str]):
        self._rules = PathRules(rules) if rules else None
        # Seconds; None when robots.txt asks for no valid delay.
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


def _readable(body: bytes) -> bytes:
    """Return the part of a body that is parsed, in UTF-8, with lines that end at LF.

    The last line of a body that is cut at ``BODY_MAX`` is left out: half a rule is another rule.
    """
    cut = len(body) > BODY_MAX
    body = body[:BODY_MAX]
    if body.startswith(_UTF16_BOMS):
        body = body.decode("utf-16", "replace").encode()
    body = _BOM.sub(b"", body).replace(b"\r", b"\n")
    return body[: body.rfind(b"\n") + 1] if cut else body


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
