"""Compress records to gzip members."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from isal import isal_zlib
from zlib_ng import zlib_ng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# isal is several times faster than zlib-ng, which compresses better.
COMPRESSIONS = re.compile(r"isal-([0-3])|zlib-ng-([1-9])")
_GZIP = 31  # zlib's ``wbits``
# Records up to this many bytes, mostly requests, are compressed by isal's level 0: it is faster,
# and on so few bytes costs little space.
_SMALL = 2048


def compressor(name: str) -> Callable[[bytes], bytes]:
    """Return a function that compresses bytes to one gzip member; other threads run meanwhile.

    :raises ValueError: ``name`` is not one of COMPRESSIONS
    """
    found = COMPRESSIONS.fullmatch(name)
    if found is None:
        raise ValueError(
            f"not a compression: {name!r}; give isal-0 to isal-3, or zlib-ng-1 to zlib-ng-9"
        )
    if found[1] is not None:
        return partial(_isal, int(found[1]))
    dense = int(found[2])
    return lambda record: zlib_ng.compress(record, dense, _GZIP)


def piecewise(name: str, pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Yield one gzip member of all ``pieces`` of a record, as they come. ``name`` is valid."""
    kind, _, level = name.rpartition("-")
    new = isal_zlib.compressobj if kind == "isal" else zlib_ng.compressobj
    member = new(int(level), wbits=_GZIP)
    for piece in pieces:
        yield member.compress(piece)
    yield member.flush()


def _isal(level: int, record: bytes) -> bytes:
    return isal_zlib.compress(record, level if len(record) > _SMALL else 0, _GZIP)
