"""Read gzip members, one record each, one at a time and in bounded memory.

The standard library's zlib decodes them: like ``gzip -t`` and unlike isal, it refuses header flags
that RFC 1952 reserves.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable

# Bytes read and decoded at a time; most members are smaller.
_PIECE = 16 * 1024
_GZIP = 16 + zlib.MAX_WBITS


def read_member(stream: BinaryIO, offset: int, sink: Callable[[bytes], object]) -> int:
    """Decode the member at ``offset``, pass its pieces to ``sink``, return its length in the file.

    :raises RecordError: no whole member with the right checksum and size begins there
    :raises OSError: the file cannot be read
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
