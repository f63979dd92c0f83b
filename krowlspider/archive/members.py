"""Gzip members, one record each, read one at a time in bounded memory.

The standard library's zlib reads: unlike isal's it refuses, as ``gzip -t`` does, header flags that
RFC 1952 reserves.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable

# Read and decoded in pieces of this size: a request's member is some 300 bytes, a page's 10 KiB.
_PIECE = 16 * 1024
_GZIP = 16 + zlib.MAX_WBITS


def read_member(stream: BinaryIO, offset: int, sink: Callable[[bytes], object]) -> int:
    """Decode the member at ``offset``, hand its pieces to ``sink``, return its length in the file.

    Raises RecordError when there is no whole member whose checksum and size agree.
    """
    decoder = zlib.decompressobj(_GZIP)
    stream.seek(offset)
    fed = 0
    while not decoder.eof:
        piece = decoder.unconsumed_tail
        if not piece:
            piece = stream.read(_PIECE)
            fed += len(piece)
        try:
            decoded = decoder.decompress(piece, _PIECE)
        except zlib.error as error:
            raise RecordError(offset, f"not a gzip member: {error}") from error
        if not piece and not decoded and not decoder.eof:
            raise RecordError(offset, "the gzip member is cut off")
        sink(decoded)
    return fed - len(decoder.unused_data)
