"""Digests in the form of WARC fields: a label, then Base32 (the examples in WARC 1.1, 5.8)."""

from __future__ import annotations

import hashlib
from base64 import b32encode

ALGORITHMS = ("sha1", "sha256")
# Two letters for each ten bits: faster than `b32encode`, which stays for the padded SHA-256.
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_PAIRS = [first + second for first in _LETTERS for second in _LETTERS]
_SHIFTS = range(150, -1, -10)


def raw_digest(content: bytes, algorithm: str) -> bytes:
    """Return the 20 or 32 bytes of a digest; ``algorithm`` is one of ALGORITHMS."""
    new = hashlib.sha1 if algorithm == "sha1" else hashlib.sha256
    return new(content, usedforsecurity=False).digest()


def label(raw: bytes, algorithm: str) -> str:
    """Return the value of a WARC field for the digest ``raw``.

    It is ``sha1:`` and 32 letters, or ``sha256:`` and 56 characters, padded by RFC 4648.
    """
    if len(raw) != 20:
        return f"{algorithm}:{b32encode(raw).decode()}"
    number, pairs = int.from_bytes(raw), _PAIRS
    return f"{algorithm}:{''.join([pairs[number >> shift & 1023] for shift in _SHIFTS])}"


def digest(content: bytes, algorithm: str = "sha1") -> str:
    """Return the labelled digest of ``content``."""
    return label(raw_digest(content, algorithm), algorithm)


def has_digest(content: bytes, claimed: str) -> bool:
    """Return whether ``claimed`` is the labelled digest of ``content``, by one of ALGORITHMS."""
    algorithm = claimed.partition(":")[0]
    return algorithm in ALGORITHMS and claimed == digest(content, algorithm)
