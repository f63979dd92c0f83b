"""Real domains, of Chromium's list of sites that demand https, in the package ``hstspreload``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# Bit in the first byte of an entry that is a whole name. The second byte is its length.
_WHOLE = 0x80


@cache
def real_domains() -> tuple[str, ...]:
    """Return the registrable domains in order. Each is computed once, so without the cache."""
    data = (files("hstspreload") / "hstspreload.bin").read_bytes()
    return tuple(sorted(set(map(domain_of.__wrapped__, _names(data)))))


def _names(data: bytes) -> Iterator[str]:
    at = 0
    while at < len(data):
        kind, size = data[at : at + 2]
        if kind & _WHOLE:
            yield data[at + 2 : at + 2 + size].decode()
        at += 2 + size
