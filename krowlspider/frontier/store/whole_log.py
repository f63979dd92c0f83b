"""LevelDB log files without their damaged records.

LevelDB's repair reads logs without looking at their checksums, so a damaged record would come back as URLs that
nobody found. What fails its checksum is taken out before. The format is LevelDB's doc/log_format.md: blocks of
32 KiB, in which records of a checksum, a length and a type follow each other.
"""

from __future__ import annotations

from struct import Struct

BLOCK = 32 * 1024
_HEADER = Struct("<IHB")
# A type that no version of LevelDB has: it skips such a record, and the commit that it is a part of.
_NO_TYPE = 0xFF
_TYPES = range(1, 5)
# CRC-32C (RFC 3720, appendix B.4), reflected.
_POLYNOMIAL = 0x82F63B78
# LevelDB masks the checksums it stores, lest one cover another: util/crc32c.h.
_MASK_DELTA = 0xA282EAD8


def _checksum_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = [_checksum_of(byte) for byte in range(256)]


def crc32c(data: bytes | bytearray) -> int:
    """CRC-32C; 80 ns a byte."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def without_damage(log: bytes) -> tuple[bytes, int]:
    """The log with damaged records made such that LevelDB skips them, and how many bytes they were.

    A record cut off at the end of the log counts as damage.
    """
    data = bytearray(log)
    damaged = 0
    for start in range(0, len(data), BLOCK):
        damaged += _clean_block(data, start, min(start + BLOCK, len(data)))
    return bytes(data), damaged


def _clean_block(data: bytearray, at: int, end: int) -> int:
    damaged = 0
    while end - at >= _HEADER.size:
        after = _end_of(data, at)
        if not any(data[at : at + _HEADER.size]):
            # Zeros fill what was allocated and not written.
            break
        if _is_whole(data, at, end):
            at = after
        elif 0 <= end - after < _HEADER.size or _is_whole(data, after, end):
            # The block ends there or the next one is whole, so the length of this one is right.
            data[at + _HEADER.size - 1] = _NO_TYPE
            damaged += after - at
            at = after
        else:
            damaged += end - at
            data[at:end] = bytes(end - at)
            break
    return damaged


def _end_of(data: bytearray, at: int) -> int:
    return at + _HEADER.size + int(_HEADER.unpack_from(data, at)[1])


def _is_whole(data: bytearray, at: int, end: int) -> bool:
    if end - at < _HEADER.size:
        return False
    after = _end_of(data, at)
    crc, _, kind = _HEADER.unpack_from(data, at)
    return (
        after <= end
        and kind in _TYPES
        and crc == _masked(crc32c(data[at + _HEADER.size - 1 : after]))
    )
