"""Pure: read robots.txt, ai.txt, tdmrep.json and licences, and apply them to a page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from krowlspider.corpus.optouts import (
    AI_TXT,
    TDM,
    UseScope,
    content_signals,
    matches,
    path_of,
    pattern_of,
    refused_at,
    rule_in,
    terms_in,
)
from krowlspider.urls.robots_groups import (
    ALL,
    ALLOW,
    CONTENT_SIGNAL,
    CONTENT_USAGE,
    DISALLOW,
    LICENSE,
    groups_in,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_Value = TypeVar("_Value")
ROBOTS, AI = "/robots.txt", "/ai.txt"
# TDM Reservation Protocol (W3C community group, 2024), "TDM File on the Origin Server".
TDM_FILE = "/.well-known/tdmrep.json"
FILES = frozenset({ROBOTS, AI, TDM_FILE})
# In the place of a path: an RSL licence, whatever its URL is.
LICENCE = "rsl"
# Bytes that are read of a file (RFC 9309, section 2.5, asks for 500 kB).
READ_MAX = 512 * 1024
# Rules of a file, and characters of them together: each page of the host is matched with all.
_RULES_MAX = 1000
_CHARS_MAX = 32 * 1024
_ACCESS = frozenset({ALLOW, DISALLOW})
# Lines that end the user agents of a group.
_RULES = _ACCESS | {CONTENT_USAGE}
# Licences that a robots.txt names, and that count.
_LICENCES_MAX = 20
# The protocol has the number; some write it as text.
_RESERVED = (1, "1")
_KINDS = {"html": ("html", "htm", "xhtml"), "pdf": ("pdf",), "gemtext": ("gmi", "gemini")}


class SiteTerms(msgspec.Struct, omit_defaults=True):
    """What a file of a host says, or a licence, and the id of the record that has it.

    There are signals for all pages, and the rules of ai.txt and tdmrep.json. A rule is a pattern,
    and whether it allows the pages that match; for tdmrep.json, whether their rights are reserved.
    ``usage`` are rules of Content-Usage, and what they refuse on the paths that ``access`` allows.
    ``licences`` are URLs as they are written, ``terms`` those of a licence.
    """

    record_id: str = ""
    signals: list[str] = []
    rules: list[tuple[str, bool]] = []
    reservations: list[tuple[str, bool]] = []
    usage: list[tuple[str, list[str]]] = []
    access: list[tuple[str, bool]] = []
    licences: list[str] = []
    terms: list[UseScope] | None = None

    @property
    def says_nothing(self) -> bool:
        return self == SiteTerms(self.record_id)

    def signals_for(self, url: str, kind: str) -> list[str]:
        """Return the signals for a page; ``kind`` is "html", "pdf" or "gemtext"."""
        if not self.rules and not self.reservations and not self.usage:
            return self.signals
        path, found = path_of(url), [*self.signals]
        found += refused_at(path, self.usage, self.access)
        if self._refuses(path, kind):
            found.append(AI_TXT)
        # The first pattern that matches decides.
        if next((is_set for each, is_set in self.reservations if matches(each, path)), False):
            found.append(TDM)
        return found

    def _refuses(self, path: str, kind: str) -> bool:
        """Return whether ai.txt disallows a page.

        The longest rule decides; of equal ones, one that allows. A rule such as ``*.html`` is about
        that kind of file, whatever the path of the page.
        """
        endings = [f"*.{ending}" for ending in _KINDS[kind]]
        found = [
            (len(pattern), allows)
            for pattern, allows in self.rules
            if pattern in endings or matches(pattern, path)
        ]
        return bool(found) and not max(found)[1]


def site_of(path: str, body: bytes) -> SiteTerms:
    """Return the signals and rules in a file; ``path`` is one of FILES, or LICENCE."""
    site = SiteTerms()
    if path == LICENCE:
        site.terms = terms_in(body)
    elif path == TDM_FILE:
        text = body[:READ_MAX].decode("utf-8", "replace").lstrip("\ufeff")
        site.reservations = _bounded(_reservations(text))
    elif path == AI:
        found = ((kind, value) for kind, value in _lines_for_all(body) if value)
        rules = ((value, kind == ALLOW) for kind, value in found if kind in _ACCESS)
        site.rules = _bounded(rules)
    else:
        _read_robots(body, site)
    return site


def _read_robots(body: bytes, site: SiteTerms) -> None:
    lines = [*_lines_for_all(body)]
    values = [value for kind, value in lines if kind == CONTENT_SIGNAL]
    site.signals = sorted(set().union(*map(content_signals, values)))
    usage = _bounded(rule_in(value) for kind, value in lines if kind == CONTENT_USAGE)
    # Where no rule refuses anything, none need be kept.
    if any(names for _, names in usage):
        site.usage = usage
        access = ((value, kind == ALLOW) for kind, value in lines if kind in _ACCESS and value)
        site.access = _bounded(access)
    site.licences = _licences_in(body)


def _licences_in(body: bytes) -> list[str]:
    """Return the URLs of the licences for all crawlers.

    Those in a group for "*" replace the others (RSL 1.0, section 4.4.2). A line behind all groups
    is in the last one by its form, but meant for all crawlers: it counts if there is no other.
    """
    found: tuple[dict[str, None], ...] = ({}, {}, {})
    for agents, lines in groups_in(body, _RULES):
        place = 0 if ALL in agents else 2 if agents else 1
        found[place].update({text_of(value): None for kind, value in lines if kind == LICENSE})
    named = next(filter(None, found), {})
    return [each for each in named if each][:_LICENCES_MAX]


def _bounded(rules: Iterable[tuple[str, _Value]]) -> list[tuple[str, _Value]]:
    """Return rules with comparable patterns; those above the limits are left out."""
    found: list[tuple[str, _Value]] = []
    chars = 0
    for text, value in rules:
        pattern = pattern_of(text)
        chars += len(pattern)
        if chars > _CHARS_MAX or len(found) == _RULES_MAX:
            break
        found.append((pattern, value))
    return found


def _reservations(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the rules of a tdmrep.json. One with another value than 0 or 1 reserves nothing."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return
    for rule in found if isinstance(found, list) else ():
        if isinstance(rule, dict) and isinstance(rule.get("location"), str):
            yield rule["location"], rule.get(TDM) in _RESERVED


def _lines_for_all(body: bytes) -> Iterator[tuple[str, str]]:
    """Yield the kind and value of lines for all crawlers.

    They are in a group for ``*``, or before the first group.
    """
    for agents, lines in groups_in(body, _RULES):
        if not agents or ALL in agents:
            for kind, value in lines:
                yield kind, text_of(value)
