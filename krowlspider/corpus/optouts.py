"""Pure: opt-outs of a page, Content-Usage among them, and the terms of RSL licences.

By these signals a page refuses archives, indexes or the training of models. Of Content-Usage
(draft-ietf-aipref-vocab, draft-ietf-aipref-attach) the value is a dictionary of structured fields
(RFC 9651, section 4.2.2). Paths are matched as in robots.txt (RFC 9309, sections 2.2.2 and 2.2.3).
The RSL licences that a page names are read too (RSL 1.0, sections 4.5 and 4.6).
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote
from xml.parsers import expat

import msgspec

from krowlspider.urls.canonical import host_of, normalise
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


class OptOutSignal(msgspec.Struct, frozen=True, order=True):
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


NAMESPACE = "https://rslstandard.org/rsl"
# Which tokens speak of a use, the narrowest first (section 3.4.1.1). "train-ai" is AIPREF's word.
_TERMS_TOKENS = {
    "ai-train": ("ai-train", "train-ai", "ai-all", "all"),
    "ai-input": ("ai-input", "ai-all", "all"),
    "ai-index": ("ai-index", "ai-all", "all"),
    "search": ("search", "all"),
}
NO, CONDITIONAL, YES = "no", "conditional", "yes"
# Weights of the narrower tokens. A narrower token has precedence over a wider one.
_WEIGHTS = {"ai-train": 3, "train-ai": 3, "ai-input": 3, "ai-index": 3, "search": 3, "ai-all": 2}
# Payments that a use without a contract can make: none, and to name the source.
_UNPAID = frozenset({"free", "attribution"})
_PRICED = frozenset({"standard", "custom", "amount", "accepts"})
# Bytes of a document, and contents with a pattern of at most so many characters, that are read.
READ_MAX = 512 * 1024
_CONTENTS_MAX = 1000
_PATTERN_MAX = 2000
_TERMS_SEPARATOR = re.compile(r"[\s,]+")


class UseScope(msgspec.Struct):
    """The pages of a host, empty for each, whose path matches a pattern; and what they may be used
    for: NO, CONDITIONAL or YES by the names of uses."""

    host: str
    pattern: str
    uses: dict[str, str]


class _Over(Exception):
    """No more of the document is read."""


class _Licence(NamedTuple):
    permits: list[str] | None
    prohibits: list[str]
    is_conditional: bool


def terms_in(body: bytes, encoding: str | None = None) -> list[UseScope] | None:
    """Return the terms of a licence, those of the narrowest scope first; None if it is none, or has
    an error before its first terms.

    XML is read up to its first error. ``encoding`` replaces the one that it declares.
    """
    reader = _Reader(encoding)
    reader.read(body[:READ_MAX].lstrip())
    if not reader.is_licence:
        return None
    found = []
    for (host, pattern), licences in reader.contents.items():
        uses = {use: verdict for use in _TERMS_TOKENS if (verdict := _verdict(use, licences))}
        if uses:
            found.append(UseScope(host, pattern, uses))
    if reader.is_broken and not found:
        return None
    return sorted(found, key=lambda scope: (-len(scope.pattern), not scope.host))


def uses_of(url: str, host: str, terms: list[UseScope]) -> dict[str, str]:
    """Return what a page of a host may be used for, by the narrowest scope that speaks of the
    use."""
    path = path_of(url)
    found: dict[str, str] = {}
    for scope in terms:
        if scope.host in {"", host} and matches(scope.pattern, path):
            found = scope.uses | found
    return found


def _verdict(use: str, licences: list[_Licence]) -> str:
    """Return what licences of one scope say of a use; empty if nothing.

    Whoever may use it under one licence may do so, but what is prohibited by an equally narrow
    token, or is not among the uses that are permitted, may not be done.
    """
    prohibited = max((_weight(use, each.prohibits) for each in licences), default=0)
    permitted = max((_weight(use, each.permits or []) for each in licences), default=0)
    if prohibited and prohibited >= permitted:
        return NO
    if permitted:
        offers = [each for each in licences if _weight(use, each.permits or [])]
    else:
        offers = [each for each in licences if each.permits is None]
        if not offers:
            return NO if licences else ""
        if not any(each.is_conditional for each in offers):
            return ""
    return CONDITIONAL if all(each.is_conditional for each in offers) else YES


def _weight(use: str, tokens: list[str]) -> int:
    return max((_WEIGHTS.get(each, 1) for each in tokens if each in _TERMS_TOKENS[use]), default=0)


class _Reader:
    """Reads licences, the elements of RSS feeds too, whatever is around them."""

    def __init__(self, encoding: str | None) -> None:
        self.is_licence = self.is_broken = False
        self.contents: dict[tuple[str, str], list[_Licence]] = defaultdict(list)
        self._scope: tuple[str, str] | None = None
        self._server = False
        self._tokens: dict[str, list[str]] = {}
        self._conditional = False
        self._payment: str | None = None
        self._text: list[str] | None = None
        self._kind = ""
        self._parser = parser = expat.ParserCreate(encoding, " ")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.EntityDeclHandler = self._entity
        parser.CharacterDataHandler = self._characters

    def read(self, body: bytes) -> None:
        try:
            self._parser.Parse(body, True)
        except _Over:
            return
        except (expat.ExpatError, LookupError, ValueError):
            # LookupError, ValueError: Python does not know the encoding, or has no table for it.
            self.is_broken = True

    def _entity(self, *_: object) -> None:
        raise _Over

    def _characters(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, local = name.rpartition(" ")
        # Some leave the namespace out.
        if namespace and not namespace.startswith(NAMESPACE):
            return
        self.is_licence |= local == "rsl" or bool(namespace)
        if local == "content":
            self._scope = _scope_of(attributes.get("url", ""))
            self._server = bool(attributes.get("server"))
        elif local == "license":
            self._tokens, self._conditional, self._payment = {}, self._server, None
        elif local in {"permits", "prohibits"}:
            self._text, self._kind = [], attributes.get("type", "usage")
        elif local == "payment":
            self._payment = attributes.get("type", "")
            self._conditional |= bool(self._payment) and self._payment not in _UNPAID
        elif local in _PRICED and self._payment == "":
            self._conditional = True

    def _end(self, name: str) -> None:
        local = name.rpartition(" ")[2]
        if local in {"permits", "prohibits"} and self._text is not None:
            words = _TERMS_SEPARATOR.split("".join(self._text).strip().lower())
            self._text = None
            if self._kind == "usage":
                self._tokens.setdefault(local, []).extend(filter(None, words))
            else:
                # Who uses it, and where, is not known here.
                self._conditional = True
        elif local == "license" and self._scope is not None:
            if self._scope not in self.contents and len(self.contents) == _CONTENTS_MAX:
                raise _Over
            self.contents[self._scope].append(
                _Licence(
                    self._tokens.get("permits"),
                    self._tokens.get("prohibits", []),
                    self._conditional,
                )
            )
        elif local == "content":
            self._scope = None


def _scope_of(url: str) -> tuple[str, str] | None:
    """Return the host and the pattern of a content; None if its URL is of no use."""
    text = url.strip()
    if len(text) > _PATTERN_MAX:
        return None
    scheme, separator, rest = text.partition("://")
    if not separator:
        return "", pattern_of(text if text.startswith(("/", "*")) or not text else f"/{text}")
    name, slash, path = rest.partition("/")
    if "*" in name:
        return "", pattern_of(slash + path)
    origin = normalise(f"{scheme}://{name}/")
    return (host_of(origin), pattern_of(slash + path)) if origin else None
