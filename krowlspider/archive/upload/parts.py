"""The parts that a file is sent in, the resulting ETag, and the time they may take. Pure."""

from __future__ import annotations

import hashlib

# Bytes of a part; a larger file is sent in parts. S3 requires 5 MiB or more.
PART = 8 * 1024 * 1024
# The most parts that S3 takes for one object; R2 also requires parts of equal size.
_PARTS_MAX = 10_000
# Files in flight at a time, and parts of each.
FILES_AT_ONCE = 2
PARTS_AT_ONCE = 2
# Bytes a second that the uplink must carry for all parts in flight together: 1 Mbit/s.
SLOWEST = 125_000
# Seconds that one request may take: all parts in flight share the slowest uplink, plus 30 s.
REQUEST = FILES_AT_ONCE * PARTS_AT_ONCE * PART / SLOWEST + 30.0


def part_size(size: int) -> int:
    """Return the bytes of each part but the last of a file, for its ETag by its size alone."""
    return max(PART, -(-size // _PARTS_MAX))


def in_flight(size: int) -> int:
    """Return the most bytes in flight at a time of a file of ``size`` bytes."""
    return min(size, PARTS_AT_ONCE * part_size(size))


def etag_of(digests: list[bytes], *, whole: bool) -> str:
    """Return the ETag that S3 assigns, from the MD5 of the object or of each part."""
    if whole:
        return digests[0].hex()
    return f"{md5(b''.join(digests)).hex()}-{len(digests)}"


def md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
