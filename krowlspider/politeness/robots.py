"""What a robots.txt says: RFC 9309, and the mistakes of those who write them.

Lines are read as Google's parser reads them, whose answers site owners know: a missing colon, a
misspelt name, a name with more letters. tests/politeness/test_robots_google.py says where this
differs from it, and why.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Self

from krowlspider.politeness.pathrules import PathRules

# Bytes of a robots.txt that are read: RFC 9309, section 2.5, asks for at least 500 KiB.
BODY_MAX = 500 * 1024


class Ruling(Enum):
    """What the status of a robots.txt answer says before its body is read: RFC 9309, section 2.3.1.

    RETRY disallows everything until a later fetch is answered otherwise.
    """

    RULES = "rules"
    REDIRECT = "redirect"
    ALLOW_ALL = "allow_all"
    RETRY = "retry"


def judge(status: int) -> Ruling:
    """The ruling of an HTTP status. 429 is the host in distress, not a site without robots.txt."""
    if 200 <= status < 300:
        return Ruling.RULES
    if 300 <= status < 400:
        return Ruling.REDIRECT
    if 400 <= status < 500 and status != 429:
        return Ruling.ALLOW_ALL
    return Ruling.RETRY


# The name and the value of each line that has a name we know. A line ends at LF, its text at "#" or
# NUL. More may follow the name before the colon, as in "Allowed:"; where there is no colon, or the
# only ones are in the value, one word may follow it.
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
# RFC 9309, section 2.2.1: a product token is of letters, "_" and "-"; what follows is ignored.
_TOKEN = re.compile(r"[A-Za-z_-]+|\*(?=\s|$)")
_ALL = "*"
# A byte order mark, one that lost its end too.
_BOM = re.compile(rb"\A\xef(?:\xbb\xbf?)?")
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


class _Group:
    """What the groups of one product token say together; ``named`` when there is any."""

    def __init__(self) -> None:
        self.named = False
        self.rules: dict[str, bool] = {}
        self.crawl_delay: float | None = None


class _Reader:
    """Tells the lines of a robots.txt by the groups they belong to: ours, and everyone's.

    A crawl delay, request rate or visit time closes the user agents of a group just as a rule does:
    that is what their authors mean.
    """

    def __init__(self, token: str):
        self.ours, self.everyones = _Group(), _Group()
        self.sitemaps: list[str] = []
        self._groups = {token: self.ours, _ALL: self.everyones}
        self._current: list[_Group] = []
        self._closed = False

    def read(self, body: bytes) -> None:
        for raw_name, raw_value in _LINES.findall(body):
            name = raw_name.lower()
            if name.startswith(b"user"):
                self._name(_text(raw_value))
            elif name.startswith(b"site"):
                if place := _text(raw_value):
                    self.sitemaps.append(place)
            else:
                self._closed = True
                if self._current and (value := _text(raw_value)):
                    self._say(name, value)

    def _name(self, agent: str) -> None:
        if self._closed:
            self._current, self._closed = [], False
        group = self._groups.get(_token(agent))
        # Once, however often it is named: each rule is added to each group here.
        if group is not None and group not in self._current:
            group.named = True
            self._current.append(group)

    def _say(self, name: bytes, value: str) -> None:
        for group in self._current:
            if name == b"allow":
                group.rules[value] = True
            elif name.startswith(b"di"):
                group.rules.setdefault(value, False)
            elif name.startswith(b"crawl"):
                group.crawl_delay = _seconds(value, group.crawl_delay)


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


# Characters, and parts of rules between wildcards, that take 200 bytes.
_SIZED = 200
_WILDCARDS_SIZED = 2


class RobotsRules:
    """The rules of one authority for one product token."""

    __slots__ = ("_rules", "crawl_delay", "sitemaps", "size")

    def __init__(self, rules: dict[str, bool], crawl_delay: float | None, sitemaps: list[str]):
        self._rules = PathRules(rules) if rules else None
        # Seconds; None when nothing sensible is asked for.
        self.crawl_delay = crawl_delay
        # As written, repeats too: neither normalised nor checked.
        self.sitemaps = sitemaps
        # Of what is kept in memory, in 200 bytes: one for each rule and sitemap, as most are short, and what long ones and
        # the parts between wildcards take more.
        texts = [*rules, *sitemaps]
        self.size = (
            len(texts)
            + sum([len(text) // _SIZED for text in texts])
            + "".join(rules).count("*") // _WILDCARDS_SIZED
        )

    @classmethod
    def parse(cls, body: bytes, agent: str) -> Self:
        """Read a robots.txt; any bytes will do. ``agent`` is the product token of the crawler."""
        reader = _Reader(_token(agent))
        reader.read(_readable(body))
        group = reader.ours if reader.ours.named else reader.everyones
        return cls(group.rules, group.crawl_delay, reader.sitemaps)

    @classmethod
    def allow_all(cls) -> Self:
        """The rules of a site without robots.txt."""
        return cls({}, None, [])

    @classmethod
    def disallow_all(cls) -> Self:
        """The rules of a site whose robots.txt cannot be had."""
        return cls({"/": False}, None, [])

    def allowed(self, url: str) -> bool | None:
        """Whether a normalised URL may be fetched. /robots.txt itself always may.

        None, when that takes too long to decide, means no.
        """
        if self._rules is None:
            return True
        path = url[url.index("/", 8) :]
        return path == "/robots.txt" or self._rules.allow(path)


def _readable(body: bytes) -> bytes:
    """What is read of a body, in UTF-8 as far as it has an encoding, its lines ended by LF.

    The last line of a cut body is left out: half a rule is another rule.
    """
    cut = len(body) > BODY_MAX
    body = body[:BODY_MAX]
    if body.startswith(_UTF16_BOMS):
        body = body.decode("utf-16", "replace").encode()
    body = _BOM.sub(b"", body).replace(b"\r", b"\n")
    return body[: body.rfind(b"\n") + 1] if cut else body


# Of zlib. At the default level some bodies of 500 KiB take 50 ms, at this one 5.
_LEVEL = 1


@lru_cache(1)
def _compress(body: bytes) -> bytes:
    """Many hosts may redirect to one robots.txt: its body is compressed once for all of them."""
    return zlib.compress(body[: BODY_MAX + 1], _LEVEL)


def _decompress(data: bytes) -> bytes:
    """The body that `_compress` got, at most what it kept; zlib.error for anything else."""
    inflate = zlib.decompressobj()
    body = inflate.decompress(data, BODY_MAX + 1)
    if not inflate.eof and len(body) <= BODY_MAX:
        raise zlib.error("cut off")
    return body


# The form of encoded records; others are refused, not guessed at.
_VERSION = 1


@dataclass(slots=True)
class RobotsRecord:
    """What was fetched as the robots.txt of an authority, to be kept on disk.

    ``ruling`` is a value of Ruling; ``fetched`` and ``expires``, when it is to be fetched again, are
    epoch seconds; ``status`` is the HTTP status, 0 without an answer; ``body`` is as received.
    """

    ruling: str
    fetched: float
    expires: float
    status: int
    body: bytes

    def encode(self) -> bytes:
        """A line of JSON, then the body compressed, cut one byte past what `parse` reads."""
        head = [_VERSION, self.ruling, self.fetched, self.expires, self.status]
        return json.dumps(head).encode() + b"\n" + _compress(self.body)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """What `encode` made; ValueError for anything else."""
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
