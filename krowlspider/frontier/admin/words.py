"""Counts, sizes, durations and texts of strangers as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 error``, ``2 errors``, ``2 tries``, ``2 processes``."""
    if number == 1:
        return f"{number:,} {noun}"
    if noun.endswith("ry"):
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"


# The kinds of what was fetched, as people read them.
_KINDS = {
    "page": "pages",
    "redirect": "redirects",
    "not_modified": "not modified",
    "sitemap": "sitemaps",
    "requisite": "requisites",
    "opt_out": "opt-out files",
    "robots": "robots.txt",
}


def kind_words(kind: str) -> str:
    """Return the plural of a kind of `krowlspider.frontier.stopped.fetched_in`."""
    return _KINDS[kind]


def also_fetched(fetched: Mapping[str, int]) -> str:
    """Return what was fetched besides pages; "" for nothing. The argument has numbers by kind."""
    found = ((kind, number) for kind, number in fetched.items() if kind != "page" and number)
    return ", ".join(f"{kind_words(kind)}: {number:,}" for kind, number in found)


def data_size(count: float) -> str:
    """Return a number of bytes with its unit: ``14.3 KB``, ``7.3 MB``, ``1,204.0 GB``."""
    for unit, size in (("KB", 1e3), ("MB", 1e6)):
        if count < 999.95 * size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e9:,.1f} GB"


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: ``8.5 s``, ``1 min 30 s``, ``28 h 17 min``."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    if (whole := round(seconds)) < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def printable(text: str) -> str:
    """Return a text with "?" for characters that are not printable, which may change a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "?" for each in text)
