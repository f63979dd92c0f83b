"""Pure: the terms of an RSL licence (Really Simple Licensing 1.0, https://rslstandard.org/rsl)."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple
from xml.parsers import expat

import msgspec

from krowlspider.corpus.optouts.signals import matches, path_of, pattern_of
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import host_of

NAMESPACE = "https://rslstandard.org/rsl"
# Which tokens speak of a use, the narrowest first (section 3.4.1.1). "train-ai" is AIPREF's word.
_TOKENS = {
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
_SEPARATOR = re.compile(r"[\s,]+")


class Scope(msgspec.Struct):
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


def terms_in(body: bytes, encoding: str | None = None) -> list[Scope] | None:
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
        uses = {use: verdict for use in _TOKENS if (verdict := _verdict(use, licences))}
        if uses:
            found.append(Scope(host, pattern, uses))
    if reader.is_broken and not found:
        return None
    return sorted(found, key=lambda scope: (-len(scope.pattern), not scope.host))


def uses_of(url: str, host: str, terms: list[Scope]) -> dict[str, str]:
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
    return max((_WEIGHTS.get(each, 1) for each in tokens if each in _TOKENS[use]), default=0)


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
            words = _SEPARATOR.split("".join(self._text).strip().lower())
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
