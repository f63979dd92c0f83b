"""Remove damaged records from LevelDB's logs before a repair.

LevelDB's repair ignores the checksums of logs, so a damaged record would come back as URLs that
nobody found. The format is LevelDB's doc/log_format.md: blocks of 32 KiB hold records, each with a
checksum, a length and a type.
"""

from __future__ import annotations

from struct import Struct

BLOCK = 32 * 1024
_HEADER = Struct("<IHB")
_TYPES = range(1, 5)
# LevelDB skips a record of an unknown type, with the batch that it belongs to.
_NO_TYPE = 0xFF
# CRC-32C (RFC 3720, appendix B.4), reflected.
_POLYNOMIAL = 0x82F63B78
# LevelDB masks the checksums that it stores: util/crc32c.h.
_MASK_DELTA = 0xA282EAD8


def _checksum_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = [_checksum_of(byte) for byte in range(256)]


def crc32c(data: bytes | bytearray) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def without_damage(log: bytes) -> tuple[bytes, int]:
    """Return the log with its damaged records disabled, and their size in bytes.

    A record that is cut off at the end of the log is damaged.
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
            # The length is right: the block ends behind the record, or another one follows.
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
    stored, _, kind = _HEADER.unpack_from(data, at)
    if after > end or kind not in _TYPES:
        return False
    crc = crc32c(data[at + _HEADER.size - 1 : after])
    return bool(stored == ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF)
