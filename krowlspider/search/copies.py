"""Copies of pages: those of the same words, and those of nearly the same text.

Of pages with the same words one is in the index. Near copies are all there, each with a fingerprint
that has a bit of each place of its MinHash (Li and König 2010); of those that a query finds, the
best is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xxhash import xxh3_128_digest

from krowlspider.corpus.copies.fingerprints import (
    PLACES,
    Fingerprints,
    hashes_of,
    may_be_spaceless,
    signature,
    sketch,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

# The share of the sequences of words that near copies have in common.
SIMILARITY = 0.8
# Half of the bits are equal by chance where the texts differ.
_APART_MAX = round(PLACES * (1 - SIMILARITY) / 2)
_NO_VERSION = b"0123456789 "


def fingerprints(cleaned: bytes, hashes: bytes) -> Fingerprints:
    """Return the fingerprints of a `krowlspider.search.forms.cleaned` text, given the hashes of its
    words. Digits do not tell versions of a page apart."""
    exact, core = xxh3_128_digest(hashes), xxh3_128_digest(cleaned.translate(None, _NO_VERSION))
    if not cleaned.isascii() and may_be_spaceless(text := cleaned.decode(), cleaned):
        # Each character of a script without spaces is a word.
        hashes = hashes_of(words_of(text))
    return Fingerprints(exact, signature(hashes), core)


def stored(minhash: bytes) -> bytes:
    """Return the fingerprint that a document has: 16 bytes, none for a text without MinHash."""
    return sketch(minhash, PLACES).to_bytes(PLACES // 8, "big") if minhash else b""


def distinct(fingerprints: Iterable[bytes]) -> list[int]:
    """Return the places of fingerprints in their order, without near copies of earlier ones."""
    found: list[int] = []
    known: list[int] = []
    for place, fingerprint in enumerate(fingerprints):
        mark = int.from_bytes(fingerprint, "big")
        if fingerprint and any((mark ^ each).bit_count() <= _APART_MAX for each in known):
            continue
        if fingerprint:
            known.append(mark)
        found.append(place)
    return found
