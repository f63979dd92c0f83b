"""The identity of a URL, written for the tests only, so that they find errors of the crawler."""

from __future__ import annotations

from functools import lru_cache

import can_ada

_TRACKING = frozenset({"gclid", "fbclid", "msclkid", "mc_cid", "mc_eid"})
"""Tracking parameters besides `utm_*`. Real pages may have them, the mock web has not."""


@lru_cache(maxsize=65_536)
def identity(url: str, base: str | None = None) -> str | None:
    """Return the normalised URL, without fragment and tracking parameters, with its query sorted.

    Return None if it is not an http(s) URL.
    """
    try:
        parsed = can_ada.parse(base) + url if base else can_ada.parse(url)
    except ValueError:
        return None
    if parsed.protocol not in ("http:", "https:"):
        return None
    head, _, query = parsed.href.partition("#")[0].partition("?")
    kept = sorted(part for part in query.split("&") if part and not _tracks(part))
    return f"{head}?{'&'.join(kept)}" if kept else head


def _tracks(parameter: str) -> bool:
    name = parameter.partition("=")[0].lower()
    return name.startswith("utm_") or name in _TRACKING
