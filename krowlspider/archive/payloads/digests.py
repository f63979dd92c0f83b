"""Digests as in WARC fields: a label, then SHA-1 in Base32, or SHA-256 in hexadecimal.

The Base32 form of SHA-256 ends in "=", which WARC 1.1, section 4 does not allow in a token. So
records written by other tools may spell a digest otherwise.
"""

from __future__ import annotations

import hashlib
from base64 import b32decode, urlsafe_b64decode
from contextlib import suppress
from dataclasses import dataclass

ALGORITHMS = ("sha1", "sha256")
_URL_SAFE = str.maketrans("+/", "-_")
# Other tools write MD5 and SHA-512 too.
_BITS = {"md5": 128, "sha1": 160, "sha256": 256, "sha512": 512}
# Two letters for each ten bits: faster than `b32encode`, for the four digests of each page.
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_PAIRS = [first + second for first in _LETTERS for second in _LETTERS]


def raw_digest(content: bytes | memoryview, algorithm: str) -> bytes:
    """Return the 20 or 32 bytes of a digest; ``algorithm`` is one of ALGORITHMS."""
    new = hashlib.sha1 if algorithm == "sha1" else hashlib.sha256
    return new(content, usedforsecurity=False).digest()


def label(raw: bytes, algorithm: str) -> str:
    """Return the value of a WARC field for the 20 or 32 bytes ``raw``."""
    if len(raw) != 20:
        return f"{algorithm}:{raw.hex()}"
    of, n = _PAIRS, int.from_bytes(raw)
    return (
        f"{algorithm}:"
        f"{of[n >> 150]}{of[n >> 140 & 1023]}{of[n >> 130 & 1023]}{of[n >> 120 & 1023]}"
        f"{of[n >> 110 & 1023]}{of[n >> 100 & 1023]}{of[n >> 90 & 1023]}{of[n >> 80 & 1023]}"
        f"{of[n >> 70 & 1023]}{of[n >> 60 & 1023]}{of[n >> 50 & 1023]}{of[n >> 40 & 1023]}"
        f"{of[n >> 30 & 1023]}{of[n >> 20 & 1023]}{of[n >> 10 & 1023]}{of[n & 1023]}"
    )


def digest(content: bytes | memoryview, algorithm: str = "sha1") -> str:
    return label(raw_digest(content, algorithm), algorithm)


def has_digest(content: bytes, claimed: str) -> bool:
    """Return whether ``claimed`` is the labelled digest of ``content``, by a known algorithm."""
    algorithm, raw = parsed(claimed)
    return (
        algorithm in _BITS
        and hashlib.new(algorithm, content, usedforsecurity=False).digest() == raw
    )


def is_checkable(labelled: str) -> bool:
    """Return whether `has_digest` knows the algorithm of a labelled digest."""
    return parsed(labelled)[0] in _BITS


def are_equal(one: str, other: str) -> bool:
    """Return whether two labelled digests are the same one, in whatever spelling."""
    return one == other or parsed(one) == parsed(other)


def is_spelt_as_ours(labelled: str) -> bool:
    """Return whether `label` writes this digest in the same spelling."""
    algorithm, raw = parsed(labelled)
    return isinstance(raw, bytes) and labelled == label(raw, algorithm)


def parsed(labelled: str) -> tuple[str, bytes | str]:
    """Return the algorithm and the bytes of a digest; its text if the form is not known."""
    label, _, value = labelled.partition(":")
    algorithm = label.lower().replace("-", "")
    bits = _BITS.get(algorithm)
    if bits is None:
        return algorithm, value
    digits = value.rstrip("=")
    with suppress(ValueError):
        if len(digits) == bits // 4:
            return algorithm, bytes.fromhex(digits)
        if len(digits) == -(-bits // 5):
            return algorithm, b32decode(digits + "=" * (-len(digits) % 8), casefold=True)
        if len(digits) == -(-bits // 6):
            return algorithm, urlsafe_b64decode(digits.translate(_URL_SAFE) + "==")
    return algorithm, value


@dataclass(frozen=True, slots=True)
class Original:
    """The response record that holds a payload: the text of its WARC-Target-URI and WARC-Date.

    ``identity`` is its WARC-Record-ID, ``digest`` its labelled payload digest if it is spelt in
    another way than here; ``""`` otherwise.
    """

    url: str
    date: str
    identity: str = ""
    digest: str = ""
