"""Pure: the hash of a text for exact duplicates, its MinHash for near ones, and their overlap.

Each sequence of five words is hashed once; its hash decides for which place of the signature it
counts (one permutation hashing, Li et al. 2012). An empty place takes the number of another that
hashing chooses, so that short texts can be compared too (Shrivastava 2017). Of each number a byte
is kept (Li and König 2010). Similar texts are found by keys, each made of some of these bytes.
"""

from __future__ import annotations

import math
import re
from functools import cache
from operator import eq
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_64_digest, xxh3_64_intdigest, xxh3_128_digest

from krowlspider.errors import need

if TYPE_CHECKING:
    from collections.abc import Iterable

PLACES = 128
# Bytes of a word's hash.
HASH = 8
# Texts that have 70 % in common share one of the keys with a probability of 0.96.
_BANDS, _ROWS = 12, 4
# Words of a sequence.
_WORDS = 5
_LANE = 64
_SHIFT = 12
# The bits of a sequence's hash that are kept, and the lowest of those that choose the place.
_MASK, _CHOOSING = (1 << 30) - 1, 23
# Above all hashes that are kept.
_EMPTY = (1 << 32) - 1
# Of each byte a digit of a sketch: its lowest bit.
_DIGITS = bytes(b"01"[byte & 1] for byte in range(256))
_SKETCHED = 64
# A byte is equal by chance.
_CHANCE = 1 / 256

# Characters of scripts without spaces between words, each of which counts as a word: Thai, Lao,
# Tibetan, Burmese, Khmer, Chinese and Japanese.
_SPACELESS = re.compile(
    "([\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
)
# Bytes to characters above which a text may have more than a few of them. To look for them takes
# long.
_WIDE = 1.1
# Of ASCII, each digit becomes 0.
_DIGIT_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
# The characters of words of ASCII, without digits.
_WORD = b"abcdefghijklmnopqrstuvwxyz+/=_.:,%-"
# Increase it when a text gets another fingerprint: old and new ones cannot be compared.
VERSION = 4


def hashes_of(words: Iterable[bytes]) -> bytes:
    """Return the hashes of words, one behind the other."""
    return b"".join(map(xxh3_64_digest, words))


def signature(hashes: bytes) -> bytes:
    """Return the signature of words, given their `hashes_of`; none for fewer than five."""
    count = len(hashes) // HASH - _WORDS + 1
    if count < 1:
        return b""
    numpy = need("numpy")
    words = numpy.frombuffer(hashes, "<u8")
    # Each word of a sequence gives other bits of its hash, the last one its lowest two.
    mixed = words[:count] ^ (words[1:][:count] >> _SHIFT)
    mixed ^= words[2:][:count] >> 2 * _SHIFT
    mixed ^= words[3:][:count] >> 3 * _SHIFT
    mixed ^= words[4:] << _LANE - 3 * _SHIFT
    found = mixed.astype(numpy.uint32) & _MASK
    least = numpy.full(PLACES, _EMPTY, numpy.uint32)
    numpy.minimum.at(least, found >> _CHOOSING, found)
    made = bytearray(least.astype(numpy.uint8))
    empty = {*(least == _EMPTY).nonzero()[0].tolist()}
    for place in empty:
        made[place] = made[next(other for other in _others(place) if other not in empty)]
    return bytes(made)


@cache
def _others(place: int) -> list[int]:
    """Return where an empty place looks for a number, in this order."""
    chosen = [xxh3_64_intdigest(bytes((place, turn))) % PLACES for turn in range(PLACES)]
    return [*chosen, *range(PLACES)]


def bands(signature: bytes) -> list[bytes]:
    """Return keys, of which similar texts share one."""
    starts = range(0, _BANDS * _ROWS, _ROWS) if signature else ()
    return [bytes((start,)) + signature[start : start + _ROWS] for start in starts]


def sketch(signature: bytes, bits: int = _SKETCHED) -> int:
    """Return so many bits, of which similar texts have most in common."""
    return int(signature[-bits:].translate(_DIGITS), 2)


def bits_apart(similarity: float) -> int:
    """Return the bits in which sketches of texts that are so similar differ, with 3.2 sigma."""
    share = (1 - similarity) / 2
    return round(_SKETCHED * share + 3.2 * math.sqrt(_SKETCHED * share * (1 - share)))


def overlap(one: bytes, other: bytes) -> float:
    """Estimate the share of the sequences of two texts that both have; the error is 0.04."""
    equal: int = sum(map(eq, one, other))
    return max((equal / PLACES - _CHANCE) / (1 - _CHANCE), 0.0)


class Fingerprints(NamedTuple):
    """``exact`` has 16 bytes, equal for texts of the same words in any case and spacing.

    ``minhash`` is empty if it was not asked for, and for fewer than five words. ``core`` is equal
    for texts that are one version of a page.
    """

    exact: bytes
    minhash: bytes = b""
    core: bytes = b""


def fingerprints(text: str, *, minhash: bool = True, numbers: bool = False) -> Fingerprints:
    """Return the fingerprints of a text. The whole text counts.

    Without ``numbers``, words with a digit do not tell versions apart.
    """
    text = text.lower()
    data = text.encode()
    words = data.split()
    joined = b" ".join(words)
    exact = xxh3_128_digest(joined)
    core = exact if numbers else xxh3_128_digest(_without_numbers(joined))
    if not minhash:
        return Fingerprints(exact, core=core)
    if may_be_spaceless(text, data):
        words = _spaced(text)
    return Fingerprints(exact, signature(hashes_of(words)), core)


def _without_numbers(data: bytes) -> bytes:
    """Return a text in lower case without its words of ASCII that have a digit, in linear time.

    In scripts without spaces only these parts of a text are left out.
    """
    first, *parts = data.translate(_DIGIT_TO_ZERO).split(b"0")
    if not parts:
        return data
    # Between two digits of one word is nothing else.
    between = filter(None, (part.strip(_WORD) for part in parts[:-1]))
    return b"0".join([first.rstrip(_WORD), *between, parts[-1].lstrip(_WORD)])


def words_of(text: str) -> list[bytes]:
    """Return the words of a text. Each character of a script without spaces is one."""
    data = text.encode()
    return _spaced(text) if may_be_spaceless(text, data) else data.split()


def may_be_spaceless(text: str, data: bytes) -> bool:
    """Return whether a text, whose bytes are given too, may be in a script without spaces."""
    return len(data) > _WIDE * len(text)


def _spaced(text: str) -> list[bytes]:
    return _SPACELESS.sub(r" \1 ", text).encode().split()
