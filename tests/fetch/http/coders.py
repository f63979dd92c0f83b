"""A page, and the functions that encode it."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

import brotli
from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = b"".join(b"<p>line %d of a page</p>\n" % i for i in range(4000))


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


CODERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": gzip.compress,
    b"x-gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"Deflate": raw_deflate,
    b"br": lambda data: brotli.compress(data, quality=4),
    b"zstd": zstd.compress,
}
