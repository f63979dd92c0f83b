"""Pure: the hash of a text for exact duplicates, and its MinHash for near ones."""

from __future__ import annotations

import re
from typing import NamedTuple

from xxhash import xxh3_64_digest, xxh3_128_digest

from krowlspider.corpus.minhash import signature

# Characters of scripts without spaces between words, each of which counts as a word: Thai, Lao,
# Tibetan, Burmese, Khmer, Chinese and Japanese.
_SPACELESS = re.compile(
    "([\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
)
# Bytes to characters above which a text may have more than a few of them. To look for them takes
# long.
_WIDE = 1.1
# Increase it when a text gets another fingerprint: old and new ones cannot be compared.
VERSION = 3


class Fingerprints(NamedTuple):
    """``exact`` has 16 bytes, equal for texts of the same words in any case and spacing.

    ``minhash`` is empty if it was not asked for, and for fewer than five words.
    """

    exact: bytes
    minhash: bytes = b""


def fingerprints(text: str, *, minhash: bool = True) -> Fingerprints:
    """Return the fingerprints of a text. The whole text counts."""
    text = text.lower()
    data = text.encode()
    words = data.split()
    exact = xxh3_128_digest(b" ".join(words))
    if not minhash:
        return Fingerprints(exact)
    if len(data) > _WIDE * len(text):
        words = _SPACELESS.sub(r" \1 ", text).encode().split()
    return Fingerprints(exact, signature([*map(xxh3_64_digest, words)]))
