"""Pure: signals by which a page refuses archives, indexes or the training of models, and the RSL
licences that it names (RSL 1.0, sections 4.5 and 4.6)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from krowlspider.corpus.optouts.usage import USAGE_SIGNALS, usage_signals
from krowlspider.urls.canonical import normalise
from krowlspider.urls.page.headers import rules_for, targets_of

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
