"""Find out which records may be RSL licences, and name them."""

from __future__ import annotations

import re

from krowlspider.urls.canonical import normalise

# Bytes of a block in which a licence shows itself: by its media type or its namespace.
PEEK = 2048
_MARKS = (b"rsl+xml", b"rslstandard.org/rsl")
# Names that licences have, if their content is compressed and has no media type of its own.
_NAME = re.compile(r"(?:licen[cs]e|(?<![a-z])rsl|royalty)[^/?]*(?:\?[^/]*)?\Z", re.IGNORECASE)


def may_be_licence(url: str, start: bytes) -> bool:
    """Return whether a record may be a licence, by its URL and the start of its block."""
    lower = start.lower()
    return any(mark in lower for mark in _MARKS) or _NAME.search(url) is not None


def key_of(url: str) -> str:
    """Return a key of a licence, the same for http and https, that is no host; or an empty text."""
    return (normalise(url) or "").partition("://")[2]
