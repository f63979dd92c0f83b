"""Read the groups of a robots.txt (RFC 9309, section 2), or of a file of the same form.

Lines are read as Google's parser reads them, because site owners know its results. It accepts a
missing colon, a misspelt name and a name with extra letters.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

# Bytes of a robots.txt that are parsed. RFC 9309, section 2.5, requires at least 500 KiB.
BODY_MAX = 500 * 1024

ALLOW, DISALLOW = "allow", "disallow"
CRAWL_DELAY, SITEMAP, CONTENT_SIGNAL = "crawl-delay", "sitemap", "content-signal"
CONTENT_USAGE, LICENSE = "content-usage", "license"
_USER_AGENT = "user-agent"
_RULES = frozenset({ALLOW, DISALLOW})
# The product token of a group for all crawlers.
ALL = "*"

# Name and value of each known line. Text ends at LF, "#" or NUL. The name may have a suffix
# ("Allowed:"). Without a colon, or with one only in the value, the value is one word.
_LINES = re.compile(
    rb"^[ \t\v\f]*+"
    rb"(user[ -]?agent|allow|disallow|dissallow|dissalow|disalow|diasllow|disallaw"
    rb"|crawl[ -]delay|content-signal|content-usage|license|sitemap|site-map)"
    rb"(?:[^\s:#\0]*+[ \t]++"
    rb"(?=(?:[^\s:#\0]++|(?:[/*]|https?:)[^\s#\0]*+)[ \t\v\f]*+(?:[\n#\0]|\Z))"
    rb"|[^\n:#\0]*+:)"
    rb"([^\n#\0]*+)",
    re.IGNORECASE | re.MULTILINE,
)
# By the first two letters of the name.
_KINDS = {
    b"us": _USER_AGENT,
    b"al": ALLOW,
    b"di": DISALLOW,
    b"cr": CRAWL_DELAY,
    b"si": SITEMAP,
    b"li": LICENSE,
}
# By the first nine.
_CONTENT_KINDS = {b"content-s": CONTENT_SIGNAL, b"content-u": CONTENT_USAGE}
# RFC 9309, section 2.2.1: a product token has letters, "_" and "-"; the rest is ignored.
_TOKEN = re.compile(r"[A-Za-z_-]+|\*(?=\s|$)")
# A UTF-8 byte order mark, complete or truncated.
_BOM = re.compile(rb"\A\xef(?:\xbb\xbf?)?")
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


class Group(NamedTuple):
    """The product tokens of a group, in lower case, and its other lines: kind and raw value."""

    agents: set[str]
    lines: list[tuple[str, bytes]]


def groups_in(body: bytes, rules: frozenset[str] = _RULES) -> Iterator[Group]:
    """Yield the groups of a body of any bytes in order, first the lines before all groups.

    Only a rule, Allow or Disallow unless others are given, ends the user agents of a group
    (RFC 9309, sections 2.2 and 2.2.4). All lines of a group are for all its user agents, those
    between the user agents too.
    """
    agents: set[str] = set()
    lines: list[tuple[str, bytes]] = []
    closed = True
    for name, value in _LINES.findall(_readable(body)):
        kind = _KINDS.get(name[:2].lower()) or _CONTENT_KINDS[name[:9].lower()]
        if kind == _USER_AGENT:
            if closed:
                yield Group(agents, lines)
                agents, lines, closed = set(), [], False
            agents.add(token_in(text_of(value)))
        else:
            lines.append((kind, value))
            closed = closed or kind in rules
    yield Group(agents, lines)


class UsageTerm(NamedTuple):
    """A line of robots.txt about the use of the pages, as text: `Content-Signal: ai-train=no`.

    ``agents`` are the product tokens of its group, "" in front of all groups. By its form, a line
    behind all groups is in the last one.
    """

    line: str
    agents: str


# Bytes of a body that are searched for such lines, and lines of at most so many characters.
TERMS_BYTES = 64 * 1024
_TERMS_MAX = 20
_TERM_MAX = 300
_TERMS = {
    CONTENT_SIGNAL: "Content-Signal",
    CONTENT_USAGE: "Content-Usage",
    LICENSE: "License",
}


@lru_cache(maxsize=16)
def terms_in(body: bytes) -> tuple[UsageTerm, ...]:
    """Return the lines about the use of the pages: Content-Signal, Content-Usage of AIPREF, and the
    License of RSL. What a person watches is read once."""
    found: dict[UsageTerm, None] = {}
    if len(body) > TERMS_BYTES:
        # Half a line is another line.
        body = body[: body.rfind(b"\n", 0, TERMS_BYTES) + 1]
    for agents, lines in groups_in(body, _RULES | {CONTENT_USAGE}):
        for kind, value in lines:
            if (name := _TERMS.get(kind)) is not None and len(found) < _TERMS_MAX:
                text = "".join(filter(str.isprintable, _shortened(text_of(value))))
                found[UsageTerm(f"{name}: {text}", _shortened(", ".join(sorted(agents))))] = None
    return tuple(found)


def _shortened(text: str) -> str:
    return text if len(text) <= _TERM_MAX else text[:_TERM_MAX] + "..."


def text_of(value: bytes) -> str:
    """Return the text of a value; what is not UTF-8 is Latin-1."""
    try:
        return value.decode().strip()
    except UnicodeDecodeError:
        return value.decode("latin-1").strip()


def token_in(value: str) -> str:
    """Return the product token that a text begins with, in lower case, or an empty text."""
    found = _TOKEN.match(value)
    return found[0].lower() if found else ""


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
