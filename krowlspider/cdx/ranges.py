"""The ranges of index lines that a URL asks for. Pure.

The ranges are those of pywb's ``calc_search_range``, and OutbackCDX's ``range``. For ``domain``,
the lines of the domain itself at other ports are added, which pywb leaves out.
"""

from __future__ import annotations

from typing import NamedTuple

from krowlspider.archive.cdxj import key_of
from krowlspider.cdx.errors import QueryError

MATCH_TYPES = ("exact", "prefix", "host", "domain", "range")
# Sorts behind every line, because lines are ASCII.
_BEHIND_ALL = b"\xff"
_EMPTY = "url= is empty: give a URL"


class Range(NamedTuple):
    """The lines of an index from ``begin`` to before ``end``, by their bytes."""

    begin: bytes
    end: bytes


def expanded(url: str, match: str) -> tuple[str, str]:
    """Return a URL without its wildcard, and the match type that this stands for."""
    if match:
        return url, match
    if url.startswith("*."):
        return url[2:], "domain"
    if url.endswith("*"):
        return url[:-1], "prefix"
    return url, "exact"


def ranges_of(url: str, match: str) -> tuple[Range, ...]:
    """Return the ranges of a URL, in the order of the index.

    :raises QueryError: there is no such match type, or the URL is none
    """
    if not url.strip():
        raise QueryError(_EMPTY)
    try:
        url.encode()
    except UnicodeEncodeError as error:
        raise QueryError(f"url={url[:80]!r} is not text in UTF-8") from error
    key = key_of(url)
    if match == "prefix":
        # The key of a URL ends neither in "/" nor in "?", but a prefix may.
        for end in ("/", "?"):
            if url.endswith(end) and not key.endswith(end):
                key += end
    return ranges_of_key(key, match)


def ranges_of_key(key: str, match: str) -> tuple[Range, ...]:
    """Return the ranges of a key. Raises QueryError as `ranges_of`."""
    host, is_host, _ = key.partition(")")
    if not key:
        raise QueryError(_EMPTY)
    if match == "exact":
        return (_range(f"{key} ", f"{key}!"),)
    if match == "prefix":
        begin = key.encode()
        return (Range(begin, begin[:-1] + bytes([begin[-1] + 1])),)
    if match == "range":
        return (Range(key.encode(), _BEHIND_ALL),)
    if match not in MATCH_TYPES:
        raise QueryError(f"matchType={match[:20]}: give one of {', '.join(MATCH_TYPES)}")
    if not is_host:
        raise QueryError(f"matchType={match}: {key[:80]} has no host")
    if match == "host":
        return (_range(f"{host})", f"{host}*"),)
    if "," not in host:
        # All hosts of a top-level domain.
        return (_range(f"{host},", f"{host}-"),)
    return _range(f"{host})", f"{host}-"), _range(f"{host}:", f"{host};")


def _range(begin: str, end: str) -> Range:
    return Range(begin.encode(), end.encode())
