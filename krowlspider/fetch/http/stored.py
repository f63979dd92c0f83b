"""Undo the content codings of a stored body, as far as it is in them.

Many archives store a body decoded, and its headers as they came. So a coding that a header names
is undone only where the body shows it.
"""

from __future__ import annotations

import re

from krowlspider.fetch.errors import DecodeFailed, TooLarge
from krowlspider.fetch.http.decode import CODINGS_CAP, DECODERS, Decoding, codings_in, is_zlib

# Bytes that no text has (MIME Sniffing, section 3), but for ESC.
_NOT_TEXT = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
# Text in UTF-16 has zeros.
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
# Bytes of a body in which text is told from a coding without a magic number. Of so many compressed
# bytes one in 10**25 has none that text lacks; shorter ones than the least may have none by chance.
_LOOKED_AT = 512
_LEAST = 64
# The start of gzip, and of a frame of Zstandard or one to be skipped (RFC 8878, section 3.1).
_GZIP = re.compile(rb"\x1f\x8b")
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
_MAGIC = {b"gzip": _GZIP, b"x-gzip": _GZIP, b"zstd": _ZSTD}
# The one body of text that is a stream of nothing: in Brotli, as servers write it.
_NOTHING = b";"


def decoded(body: bytes, codings: str, cap: int) -> bytes:
    """Return a stored body without the codings of a Content-Encoding that it is in.

    One that is cut short yields what could be decoded.

    :raises ValueError: it is broken, is cut before its first byte, has more codings than
        CODINGS_CAP, or is larger than ``cap`` bytes once decoded
    """
    undone = 0
    for coding in reversed(codings_in(codings.encode("latin-1"))):
        if coding not in DECODERS:
            break
        if not body or not _may_be_in(coding, body):
            continue
        undone += 1
        if undone > CODINGS_CAP:
            raise ValueError(f"more than {CODINGS_CAP} content codings, one upon the other")
        found = _undone(coding, body, cap)
        body = body if found is None else found
    return body


def _may_be_in(coding: bytes, body: bytes) -> bool:
    if coding in _MAGIC:
        return _MAGIC[coding].match(body) is not None
    # Brotli, and deflate without a header, begin with any bytes.
    return len(body) < _LEAST or not _is_text(body) or (coding == b"deflate" and is_zlib(body))


def _undone(coding: bytes, body: bytes, cap: int) -> bytes | None:
    """Return a body without a coding; None if it seems to be no more in that coding."""
    decoding = Decoding(body, coding, cap)
    is_doubtful = coding not in _MAGIC and _seems_decoded(body)
    try:
        decoding.run()
    except DecodeFailed as error:
        if is_doubtful:
            return None
        raise ValueError(str(error)) from error
    except TooLarge as error:
        raise ValueError(str(error)) from error
    if is_doubtful and not (decoding.ended and (decoding.body or body == _NOTHING)):
        # A few letters are the start of a stream in some codings, or a whole one of nothing.
        return None
    if not decoding.body and not decoding.ended:
        raise ValueError(f"{coding.decode()} data that is cut off before its first byte")
    return decoding.body


def _seems_decoded(body: bytes) -> bool:
    return _is_text(body) or any(magic.match(body) for magic in (_GZIP, _ZSTD))


def _is_text(body: bytes) -> bool:
    return body.startswith(_UTF_16) or _NOT_TEXT.search(body, 0, _LOOKED_AT) is None
