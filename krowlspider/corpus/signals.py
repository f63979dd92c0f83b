"""Pure: signals by which a page refuses archives, indexes or the training of models."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from krowlspider.corpus.optouts.usage import USAGE_SIGNALS, usage_signals
from krowlspider.urls.page.headers import rules_for

if TYPE_CHECKING:
    from collections.abc import Iterable

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
