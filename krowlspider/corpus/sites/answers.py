"""Pure: read robots.txt, ai.txt and tdmrep.json, and apply them to a page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from krowlspider.corpus.signals import AI_TXT, TDM, content_signals
from krowlspider.corpus.sites.patterns import matches, path_of, pattern_of
from krowlspider.urls.robots_groups import ALL, ALLOW, CONTENT_SIGNAL, DISALLOW, groups_in, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROBOTS, AI = "/robots.txt", "/ai.txt"
# TDM Reservation Protocol (W3C community group, 2024), "TDM File on the Origin Server".
TDM_FILE = "/.well-known/tdmrep.json"
FILES = frozenset({ROBOTS, AI, TDM_FILE})
# Bytes that are read of a file (RFC 9309, section 2.5, asks for 500 kB).
READ_MAX = 512 * 1024
# Rules of a file, and characters of them together: each page of the host is matched with all.
_RULES_MAX = 1000
_CHARS_MAX = 32 * 1024
_AI_RULES = frozenset({ALLOW, DISALLOW})
# The protocol has the number; some write it as text.
_RESERVED = (1, "1")
_KINDS = {"html": ("html", "htm", "xhtml"), "pdf": ("pdf",)}


class Site(msgspec.Struct):
    """The answers of a host: signals for all its pages, the rules of its ai.txt and tdmrep.json.

    A rule is a pattern, and whether it allows the pages that match; for tdmrep.json, whether their
    rights are reserved.
    """

    signals: list[str] = []
    rules: list[tuple[str, bool]] = []
    reservations: list[tuple[str, bool]] = []

    def add(self, other: Site) -> None:
        self.signals += other.signals
        self.rules += other.rules
        self.reservations += other.reservations

    def signals_for(self, url: str, kind: str) -> list[str]:
        """Return the signals for a page; ``kind`` is "html" or "pdf"."""
        if not self.rules and not self.reservations:
            return self.signals
        path, found = path_of(url), [*self.signals]
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


def site_of(path: str, body: bytes) -> Site:
    """Return the signals and rules in a file; ``path`` is one of FILES."""
    site = Site()
    if path == TDM_FILE:
        text = body[:READ_MAX].decode("utf-8", "replace").lstrip("\ufeff")
        site.reservations = _bounded(_reservations(text))
    elif path == AI:
        found = ((kind, value) for kind, value in _lines_for_all(body) if value)
        rules = ((value, kind == ALLOW) for kind, value in found if kind in _AI_RULES)
        site.rules = _bounded(rules)
    else:
        values = (value for kind, value in _lines_for_all(body) if kind == CONTENT_SIGNAL)
        site.signals = sorted(set().union(*map(content_signals, values)))
    return site


def _bounded(rules: Iterable[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Return rules with comparable patterns; those above the limits are left out."""
    found: list[tuple[str, bool]] = []
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
    for agents, lines in groups_in(body):
        if not agents or ALL in agents:
            for kind, value in lines:
                yield kind, text_of(value)
