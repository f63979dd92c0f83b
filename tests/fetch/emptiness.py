"""Bodies that take work and yield nothing: blocks, members and frames without a byte, in each
coding.

Each has a start, a unit that may be repeated, and an end."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass

from backports import zstd


class _Bits:
    """Bits in the order of RFC 1951 and RFC 7932: the lowest of a byte first."""

    def __init__(self) -> None:
        self._value = 0
        self._count = 0

    def put(self, value: int, count: int) -> None:
        self._value |= value << self._count
        self._count += count

    def bytes(self) -> bytes:
        return self._value.to_bytes((self._count + 7) // 8, "little")


@dataclass(frozen=True, slots=True)
class Emptiness:
    """A body of any length that decodes to nothing; ``coding`` is its Content-Encoding."""

    coding: bytes
    start: bytes
    unit: bytes
    end: bytes

    def of(self, size: int) -> bytes:
        """Return a body of about this many bytes."""
        return self.start + self.unit * (size // len(self.unit)) + self.end


def _fixed() -> bytes:
    """Return four empty blocks with fixed Huffman codes."""
    bits = _Bits()
    for _ in range(4):
        bits.put(0b010, 3)
        bits.put(0, 7)
    return bits.bytes()


def _dynamic() -> bytes:
    """Return four empty blocks, each with its own Huffman codes in the shortest form."""
    bits = _Bits()
    for _ in range(4):
        bits.put(0b100, 3)
        # 257 codes of literals, 1 of distances, 18 of code lengths: those of 18 (many zeros) and of
        # 1 have a bit.
        bits.put(0, 10)
        bits.put(14, 4)
        for symbol in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1]:
            bits.put(int(symbol in (18, 1)), 3)
        for zeros in (138, 118):
            bits.put(1, 1)
            bits.put(zeros - 11, 7)
        # The end of the block and a distance; then the end itself.
        bits.put(0, 3)
    return bits.bytes()


def _tables() -> bytes:
    """Return eight metablocks of one byte each, with 256 block types of literals and a context map
    of 16,384 places, in 82 bytes."""
    bits = _Bits()
    for _ in range(8):
        # Not the last, of 4 nibbles, length 1, compressed.
        bits.put(0, 20)
        # 256 types, by a code of the symbol 0; their counts, by one of the symbol 0. No types of
        # commands, 1 of distances.
        bits.put(0b1111111_111_1, 11)
        for width in (9, 5):
            bits.put(1, 4)
            bits.put(0, width)
        bits.put(0, 2 + 2 + 6)
        # Their context modes.
        bits.put(0, 2 * 256)
        # Two trees of literals; one run of 2 ** 14 zeros, and the move to front undone.
        bits.put(0b000_1, 4)
        bits.put(0b1111_1, 5)
        bits.put(1, 4)
        bits.put(14, 5)
        bits.put(0, 14)
        bits.put(1, 1)
        # One tree of distances. Codes of one symbol each: literals, commands (a literal, and copy),
        # distances.
        bits.put(0, 1)
        for symbol, width in ((97, 8), (97, 8), (8, 10), (0, 6)):
            bits.put(1, 4)
            bits.put(symbol, width)
    return bits.bytes()


# A frame's head without size and checksum, its window of 8 MiB.
_FRAME = b"\x28\xb5\x2f\xfd\x00\x68"
# An empty metablock of metadata, by which the next begins with a byte.
_BROTLI = b"\x0c"
_LAST_BLOCK = b"\x01\x00\x00"
_DEFLATE_END = b"\x01\x00\x00\xff\xff"

NOTHING = {
    "stored blocks": Emptiness(b"deflate", b"", b"\0\0\0\xff\xff", _DEFLATE_END),
    "fixed blocks": Emptiness(b"deflate", b"", _fixed(), _DEFLATE_END),
    "dynamic blocks": Emptiness(b"deflate", b"", _dynamic(), _DEFLATE_END),
    "gzip blocks": Emptiness(b"gzip", gzip.compress(b"")[:10], _fixed(), _DEFLATE_END + bytes(8)),
    "gzip members": Emptiness(b"gzip", b"", gzip.compress(b"", mtime=0), b""),
    "brotli metadata": Emptiness(b"br", _BROTLI, b"\x06", b"\x03"),
    "brotli tables": Emptiness(b"br", _BROTLI, _tables(), b"\x03"),
    "zstd raw blocks": Emptiness(b"zstd", _FRAME, bytes(3), _LAST_BLOCK),
    "zstd run blocks": Emptiness(b"zstd", _FRAME, b"\x02\0\0a", _LAST_BLOCK),
    "zstd frames": Emptiness(b"zstd", b"", zstd.compress(b""), b""),
    "zstd skippable frames": Emptiness(b"zstd", b"", b"\x50\x2a\x4d\x18\0\0\0\0", b""),
}


def costly(size: int) -> bytes:
    """Return raw deflate of about ``size`` bytes that yields little and takes longest: a short run,
    then many empty blocks."""
    run = zlib.compressobj(9, zlib.DEFLATED, -15)
    some = run.compress(bytes(2_000)) + run.flush(zlib.Z_FULL_FLUSH)
    unit = some + _fixed() * 2000
    return unit * (size // len(unit)) + _DEFLATE_END
