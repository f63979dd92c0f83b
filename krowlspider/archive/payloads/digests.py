"""Digests in the form of WARC fields: a label, then Base32 (the examples in WARC 1.1, 5.8)."""

from __future__ import annotations

import hashlib
from base64 import b32encode

ALGORITHMS = ("sha1", "sha256")
# Two letters for each ten bits: faster than `b32encode`, for the four digests of each page.
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_PAIRS = [first + second for first in _LETTERS for second in _LETTERS]


def raw_digest(content: bytes, algorithm: str) -> bytes:
    """Return the 20 or 32 bytes of a digest; ``algorithm`` is one of ALGORITHMS."""
    new = hashlib.sha1 if algorithm == "sha1" else hashlib.sha256
    return new(content, usedforsecurity=False).digest()


def label(raw: bytes, algorithm: str) -> str:
    """Return the value of a WARC field for the 20 or 32 bytes ``raw``."""
    if len(raw) != 20:
        return f"{algorithm}:{b32encode(raw).decode()}"
    of, n = _PAIRS, int.from_bytes(raw)
    return (
        f"{algorithm}:"
        f"{of[n >> 150]}{of[n >> 140 & 1023]}{of[n >> 130 & 1023]}{of[n >> 120 & 1023]}"
        f"{of[n >> 110 & 1023]}{of[n >> 100 & 1023]}{of[n >> 90 & 1023]}{of[n >> 80 & 1023]}"
        f"{of[n >> 70 & 1023]}{of[n >> 60 & 1023]}{of[n >> 50 & 1023]}{of[n >> 40 & 1023]}"
        f"{of[n >> 30 & 1023]}{of[n >> 20 & 1023]}{of[n >> 10 & 1023]}{of[n & 1023]}"
    )


def digest(content: bytes, algorithm: str = "sha1") -> str:
    return label(raw_digest(content, algorithm), algorithm)


def has_digest(content: bytes, claimed: str) -> bool:
    """Return whether ``claimed`` is the labelled digest of ``content``, by one of ALGORITHMS."""
    algorithm = claimed.partition(":")[0]
    return algorithm in ALGORITHMS and claimed == digest(content, algorithm)
