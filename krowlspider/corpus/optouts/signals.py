"""Pure: signals by which a page refuses archives, indexes or the training of models.

Of Content-Usage (draft-ietf-aipref-vocab, draft-ietf-aipref-attach) the value is a dictionary of
structured fields (RFC 9651, section 4.2.2). Paths are matched as in robots.txt (RFC 9309, sections
2.2.2 and 2.2.3). The RSL licences that a page names are read too (RSL 1.0, sections 4.5 and 4.6).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec

from krowlspider.urls.canonical import normalise
from krowlspider.urls.page.headers import rules_for, targets_of

if TYPE_CHECKING:
    from collections.abc import Iterable

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


_KEY = r"[a-z*][a-z0-9_.*-]*+"
_WORD = r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*+"
# Numbers, dates, strings, byte sequences, booleans, and strings of Unicode.
_OTHERS = (
    r"@?-?\d{1,15}+(?![\d.])|-?\d{1,12}+\.\d{1,3}+(?!\d)",
    r'"(?:[ !#-\[\]-~]++|\\["\\])*"',
    r":[A-Za-z0-9+/=]*+:|\?[01]",
    r'%"(?:[ !#$&-~]++|%[0-9a-f]{2})*"',
)
_ITEM = rf"(?:{_WORD}|{'|'.join(_OTHERS)})"
_PARAMETERS = rf"(?:; *{_KEY}(?:={_ITEM})?)*"
_LIST = rf"\( *(?:{_ITEM}{_PARAMETERS}(?: +(?=[^ ])|(?=\))))*\)"
# Groups are not repeated by "*+": before Python 3.11.5 a failed repetition is not undone
# (gh-106052). Nothing in them can be matched in two ways, so that they take linear time.
# The key; then a token, or another value or none.
_MEMBER = re.compile(rf"({_KEY})(?:=(?:({_WORD})|{_LIST}|{'|'.join(_OTHERS)}))?{_PARAMETERS}")
_COMMA = re.compile(r"[ \t]*+,[ \t]*+")


def tokens_in(value: str) -> dict[str, str | None] | None:
    """Return the token that each key has, None for another value; None if it is no dictionary.

    The last of a repeated key counts. Parameters are left out.
    """
    text = value.strip(" ")
    found: dict[str, str | None] = {}
    place = 0
    while place < len(text):
        member = _MEMBER.match(text, place)
        if member is None:
            return None
        # A repeated key keeps its place, which matters to nobody.
        found[member[1]] = member[2]
        place = member.end()
        if place == len(text):
            break
        comma = _COMMA.match(text, place)
        if comma is None or comma.end() == len(text):
            return None
        place = comma.end()
    return found


# Labels of the vocabulary as of its revision 8, and those that only earlier ones have: archives
# hold files that were written by these.
_CURRENT = ("train-ai", "ai-use", "search")
_EARLIER = ("train-genai", "genai", "ai", "tdm", "all", "bots", "ai-output", "inference")
# Uses of which training is a part, and labels that speak of training itself.
_WIDER = frozenset({"tdm", "all", "bots", "ai"})
_TRAINING = frozenset({"train-ai", "train-genai", "genai", "ai"})
USAGE_SIGNALS = frozenset(f"{label}=n" for label in (*_CURRENT, *_EARLIER))


def usage_signals(value: str) -> set[str]:
    """Return what a statement refuses: "train-ai=n" and the like.

    A wider use that is refused is left out where the statement allows training itself, which then
    has precedence (revision 4, section 5).
    """
    tokens = tokens_in(value) or {}
    refused = {label for label, answer in tokens.items() if answer == "n"}
    if any(tokens.get(label) == "y" for label in _TRAINING):
        refused -= _WIDER
    return {f"{label}=n" for label in refused} & USAGE_SIGNALS


def rule_in(value: str) -> tuple[str, list[str]]:
    """Return the path of a rule of robots.txt, empty for each path, and what it refuses."""
    text = value.lstrip(" \t")
    path = ""
    if text.startswith("/"):
        path, *rest = text.replace("\t", " ").split(" ", 1)
        text = rest[0].strip(" ") if rest else ""
    return path, sorted(usage_signals(text.strip(" \t")))


def refused_at(
    path: str, rules: Iterable[tuple[str, list[str]]], access: Iterable[tuple[str, bool]]
) -> list[str]:
    """Return what the longest rules that match a path refuse.

    Of equally long ones each counts. A path that may not be crawled by ``access``, patterns and
    whether they allow, has no preferences.
    """
    found = [(len(pattern), names) for pattern, names in rules if matches(pattern, path)]
    if not found:
        return []
    longest = max(length for length, _ in found)
    allowed = [(len(pattern), allows) for pattern, allows in access if matches(pattern, path)]
    if allowed and not max(allowed)[1]:
        return []
    return sorted({name for length, names in found if length == longest for name in names})


# What a value of robots says: https://developers.google.com/search/docs/crawling-indexing/
# robots-meta-tag; noai and noimageai are DeviantArt's.
_TOKENS = frozenset({"noindex", "noarchive", "noai", "noimageai"})
# TDM Reservation Protocol (W3C community group, 2024): header, meta element, tdmrep.json.
TDM = "tdm-reservation"
# Content-Signal (draft-romm-aipref-contentsignals): a line of robots.txt, or a header.
_CONTENT_SIGNALS = frozenset({"ai-input=no", "ai-train=no", "search=no"})
# Spawning's file of the same name disallows the page.
AI_TXT = "ai.txt"
# What an RSL licence says of a use; and a licence that is in no WARC file, or not readable.
RSL_SIGNALS = frozenset(
    f"rsl:{use}={verdict}"
    for use in ("ai-train", "ai-input", "ai-index", "search")
    for verdict in ("no", "conditional")
)
RSL_UNKNOWN = "rsl=unknown"
SIGNALS = frozenset(
    {*_TOKENS, *_CONTENT_SIGNALS, *USAGE_SIGNALS, *RSL_SIGNALS, RSL_UNKNOWN, TDM, AI_TXT}
)
_SEPARATOR = re.compile(r"[\s,;]+")
# No start within a run of white space: a long run is read once.
_EQUALS = re.compile(r"(?<!\s)\s*+=\s*+")

LICENSE_TYPE = "application/rsl+xml"
_MARK = "rsl+xml"
# As some write it in a page.
_MARKS = (_MARK, _MARK.upper(), "RSL+xml")
# Licences of one page that count.
_MAX = 20


class Signal(msgspec.Struct, frozen=True, order=True):
    """A signal, and the WARC-Record-ID of the record that says it, without "<" and ">"."""

    name: str
    record_id: str


def signals(
    headers: Iterable[tuple[str, str]],
    metas: Iterable[tuple[str, str]],
    site: Iterable[str] = (),
) -> list[str]:
    """Return the signals of a page and its site, sorted.

    Names of headers and meta elements are lower-case. Rules of a header for one named crawler
    ("googlebot: noindex") are not for us; a meta element names the crawler in its name. A
    reservation in the head of the page replaces that of the header, and this one that of the site.
    """
    found, in_headers, in_metas = {*site}, set(), set()
    usage = []
    for name, value in headers:
        if name == "x-robots-tag":
            # Some servers separate the rules by semicolons.
            found |= _tokens(",".join(rules_for("*", value.replace(";", ","))))
        elif name == "content-signal":
            found |= content_signals(value)
        elif name == "content-usage":
            usage.append(value)
        elif name == TDM:
            in_headers.add(value)
    if usage:
        # Several lines are one dictionary (RFC 9651, section 4.2).
        found |= usage_signals(", ".join(usage))
    for name, value in metas:
        if name == "robots":
            found |= _tokens(value)
        elif name == TDM:
            in_metas.add(value.strip())
    for values in (in_headers, in_metas):
        if "1" in values:
            found.add(TDM)
        elif "0" in values:
            found.discard(TDM)
    return sorted(found)


def content_signals(value: str) -> set[str]:
    """Return what a Content-Signal refuses: "ai-train=no" and the like."""
    return set(_SEPARATOR.split(_EQUALS.sub("=", value.lower()))) & _CONTENT_SIGNALS


def _tokens(value: str) -> set[str]:
    words = set(_SEPARATOR.split(value.lower()))
    return (words | {"noindex"} if "none" in words else words) & _TOKENS


class Licences(NamedTuple):
    """The URLs of licences, and the text of those in the page itself."""

    urls: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


def licences_in(tree: Any, html: str, url: str) -> Licences:
    """Return the licences that a page names in its head, or has in a ``script`` element."""
    # Searched in the text first: few pages have them.
    if not any(mark in html for mark in _MARKS):
        return Licences()
    urls: list[str | None] = []
    texts: list[str] = []
    head = tree.head
    for link in head.get_elements_by_tag_name("link").values() if head is not None else ():
        relations = (link.getattr("rel") or "").lower().split()
        if "license" in relations and _is_licence(link.getattr("type")):
            urls.append(normalise(link.getattr("href") or "", url))
    for script in tree.document.get_elements_by_tag_name("script").values():
        node = script.first_child
        if node is not None and _is_licence(script.getattr("type")):
            texts.append(node.value or "")
    return Licences(tuple(filter(None, urls[:_MAX])), tuple(texts[:_MAX]))


def licences_of(headers: Iterable[tuple[str, str]], url: str) -> list[str]:
    """Return the URLs of the licences that the Link headers of a page name."""
    values = [value for name, value in headers if name == "link" and _MARK in value.lower()]
    targets = targets_of(values, "license", LICENSE_TYPE) if values else []
    return [each for target in targets[:_MAX] if (each := normalise(target, url))]


def _is_licence(media_type: str | None) -> bool:
    return (media_type or "").partition(";")[0].strip().lower() == LICENSE_TYPE
