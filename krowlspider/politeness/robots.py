"""What a robots.txt allows: RFC 9309, over Protego.

Protego matches the rules. The lines it would read otherwise than the RFC are put right before: an
unknown line must not close a group, a group is chosen by product token alone, and only CR and LF
end a line.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import Self
from urllib.parse import quote

from protego import Protego

# Bytes of a robots.txt that are read: RFC 9309, section 2.5, asks for at least 500 KiB.
BODY_MAX = 500 * 1024
# "*" and "$" that are read: Protego takes up to 20 µs for each, and 2 µs at each URL.
WILDCARDS_MAX = 10_000


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


# Lines that Protego knows, its list of misspellings included. A crawl delay, request rate or visit
# time closes the user agents of a group just as a rule does: that is what their authors mean.
_LINE = re.compile(
    r"(user[ -]?agent|allow|disallow|dissallow|dissalow|disalow|diasllow|disallaw"
    r"|crawl[ -]delay|request[ -]rate|visit[ -]time|sitemaps?|site-map)(?:[ \t]*:|[ \t]|$)(.*)",
    re.IGNORECASE | re.DOTALL,
)
# RFC 9309, section 2.2.1: a product token is of letters, "_" and "-"; what follows is ignored.
_TOKEN = re.compile(r"[A-Za-z_-]+|\*(?=\s|$)")
# Protego compares user agents as parts of a text; these three names only ever match themselves.
_US, _ALL, _OTHERS = "us", "*", "others"
# What Protego could take for the end of a line, or spell in another way.
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")
# A byte order mark, one that lost its end too.
_BOM = re.compile(rb"\A\xef(?:\xbb\xbf?)?")
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


class RobotsRules:
    """The rules of one authority for one product token."""

    __slots__ = ("_protego", "crawl_delay", "sitemaps")

    def __init__(self, text: str):
        self._protego = Protego.parse(text)
        # Seconds; None when nothing sensible is asked for.
        self.crawl_delay = self._protego.crawl_delay(_US)
        # As written: neither normalised nor checked.
        self.sitemaps = list(self._protego.sitemaps)

    @classmethod
    def parse(cls, body: bytes, agent: str) -> Self:
        """Read a robots.txt; any bytes will do. ``agent`` is the product token of the crawler.

        One with more than WILDCARDS_MAX disallows everything: it cannot be obeyed in time.
        """
        token = _token(agent)
        text = "\n".join(line for raw in _lines(body) if (line := _cleaned(raw, token)))
        if text.count("*") + text.count("$") > WILDCARDS_MAX:
            return cls.disallow_all()
        return cls(text)

    @classmethod
    def allow_all(cls) -> Self:
        """The rules of a site without robots.txt."""
        return cls("")

    @classmethod
    def disallow_all(cls) -> Self:
        """The rules of a site whose robots.txt cannot be had."""
        return cls(f"user-agent: {_ALL}\ndisallow: /")

    def allowed(self, url: str) -> bool:
        """Whether a normalised URL may be fetched. /robots.txt itself always may."""
        return self._protego.can_fetch(url, _US)


def _lines(body: bytes) -> list[bytes]:
    """Lines end at CR or LF. The last of a cut body is left out: half a rule is another rule."""
    if body.startswith(_UTF16_BOMS):
        body = body[:BODY_MAX].decode("utf-16", "replace").encode()
    lines = re.split(rb"[\r\n]+", _BOM.sub(b"", body[:BODY_MAX]))
    return lines[:-1] if len(body) > BODY_MAX else lines


def _cleaned(line: bytes, token: str) -> str | None:
    """The line as Protego reads it rightly, or None when it has none of the names we know."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        text = line.decode("latin-1")
    found = _LINE.match(text.partition("#")[0].strip())
    if found is None:
        return None
    name, value = found[1].lower(), found[2].strip()
    if name.startswith("user"):
        return f"user-agent: {_group(value, token)}"
    return f"{name}: {_UNPRINTABLE.sub(_escaped, value)}"


def _group(value: str, token: str) -> str:
    named = _token(value)
    if named == _ALL:
        return _ALL
    return _US if named and named == token else _OTHERS


def _token(value: str) -> str:
    found = _TOKEN.match(value)
    return found[0].lower() if found else ""


def _escaped(found: re.Match[str]) -> str:
    return quote(found[0])


# The form of encoded records; others are refused, not guessed at.
_VERSION = 1


@dataclass(slots=True)
class RobotsRecord:
    """What was fetched as the robots.txt of an authority, to be kept on disk.

    ``ruling`` is a value of Ruling; ``fetched`` and ``expires`` are epoch seconds; ``status`` is
    the HTTP status, 0 without an answer; ``body`` is as received.
    """

    ruling: str
    fetched: float
    expires: float
    status: int
    body: bytes

    def encode(self) -> bytes:
        """A line of JSON, then the body compressed, cut one byte past what `parse` reads."""
        head = [_VERSION, self.ruling, self.fetched, self.expires, self.status]
        return json.dumps(head).encode() + b"\n" + zlib.compress(self.body[: BODY_MAX + 1])

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """What `encode` made; ValueError for anything else."""
        head, _, body = data.partition(b"\n")
        try:
            version, ruling, fetched, expires, status = json.loads(head)
            record = cls(Ruling(ruling).value, float(fetched), float(expires), int(status), b"")
            if version != _VERSION:
                raise ValueError(f"version {version}")
            record.body = zlib.decompress(body)
        except (ValueError, TypeError, OverflowError, zlib.error) as e:
            raise ValueError(f"not a robots record: {e}") from e
        return record
