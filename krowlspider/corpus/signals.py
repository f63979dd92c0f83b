"""Signals by which a page refuses archives, indexes or the training of models."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# What a value of robots says: https://developers.google.com/search/docs/crawling-indexing/
# robots-meta-tag; noai and noimageai are DeviantArt's.
_TOKENS = frozenset({"noindex", "noarchive", "noai", "noimageai"})
# TDM Reservation Protocol (W3C community group, 2024): header and meta element.
TDM = "tdm-reservation"
SIGNALS = frozenset({*_TOKENS, TDM})
_SEPARATOR = re.compile(r"[\s,;]+")


def signals(headers: Iterable[tuple[str, str]], metas: Iterable[tuple[str, str]]) -> list[str]:
    """Return the signals of a page, sorted. Names of headers and meta elements are lower-case.

    A value for one named crawler ("googlebot: noindex") is not for us.
    """
    found: set[str] = set()
    for name, value in headers:
        if name == "x-robots-tag":
            found |= _tokens(value)
        elif name == TDM and value == "1":
            found.add(TDM)
    for name, value in metas:
        if name == "robots":
            found |= _tokens(value)
        elif name == TDM and value.strip() == "1":
            found.add(TDM)
    return sorted(found)


def _tokens(value: str) -> set[str]:
    agent, colon, _ = value.partition(":")
    if colon and agent.strip().lower() not in {"unavailable_after", *_TOKENS} and "," not in agent:
        return set()
    words = set(_SEPARATOR.split(value.lower()))
    return (words | {"noindex"} if "none" in words else words) & _TOKENS
