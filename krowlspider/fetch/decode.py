"""Content codings undone, with a bound on what comes out (RFC 9110, section 8.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import brotli
from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
from isal import isal_zlib

from krowlspider.fetch.errors import DecodeFailed, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable

# Servers chain two at most; each more is another full pass over up to ``cap`` bytes.
CODINGS_CAP = 4
# Ordinary bodies are one gzip member; log files and block-compressed archives have some hundreds.
MEMBERS_CAP = 1000
# Input given to a decoder at a time: bounds what it copies when a member ends within it.
WINDOW = 64 * 1024
# Output taken from a decoder at a time.
STEP = 1024 * 1024
ZSTD_WINDOW_LOG = 23  # 8 MiB: RFC 9659, what a decoder of this content coding must support

# The stub types the exception class as an instance.
_DeflateError = cast("type[Exception]", isal_zlib.error)
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP, _ZLIB, _RAW = 31, 15, -15  # zlib's ``wbits``


class _Output:
    """Decoded pieces, never more than ``cap`` bytes in all."""

    __slots__ = ("_cap", "_pieces", "room")

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._pieces: list[bytes] = []
        self.room = cap
        """Bytes that still fit."""

    def add(self, piece: bytes) -> None:
        """Raises TooLarge when the piece does not fit."""
        self.room -= len(piece)
        if self.room < 0:
            raise TooLarge(f"more than {self._cap} bytes once decoded")
        self._pieces.append(piece)

    def join(self) -> bytes:
        return b"".join(self._pieces)


def decode_body(body: bytes, encodings: bytes, cap: int) -> bytes:
    """Undo the codings of a Content-Encoding value, the last one first.

    A body cut short yields what could be decoded. A coding nobody knows ("utf-8", "none") is
    left as it is, as browsers do. Decoding stops at the first piece past ``cap``.
    Raises TooLarge past ``cap`` bytes, DecodeFailed for what is not in its coding.
    """
    codings = [coding for part in encodings.lower().split(b",") if (coding := part.strip())]
    if len(codings) > CODINGS_CAP:
        raise DecodeFailed(f"{len(codings)} content codings, one upon the other")
    for coding in reversed(codings):
        decoder = _DECODERS.get(coding)
        if decoder is None:
            break
        if body:
            output = _Output(cap)
            decoder(body, output)
            body = output.join()
    return body


def _identity(body: bytes, output: _Output) -> None:
    output.add(body)


def _gzip(body: bytes, output: _Output) -> None:
    at = 0
    for _ in range(MEMBERS_CAP):
        at = _inflate(body, at, _GZIP, output)
        # What follows the last member and is not another one is padding, or garbage.
        if body[at : at + 2] != _GZIP_MAGIC:
            return
    raise DecodeFailed(f"more than {MEMBERS_CAP} gzip members")


def _deflate(body: bytes, output: _Output) -> None:
    # "deflate" is the zlib format (RFC 9110, section 8.4.1.2), but some servers send it bare.
    header = int.from_bytes(body[:2], "big")
    zlib_header = body[0] & 0x0F == 8 and header % 31 == 0
    _inflate(body, 0, _ZLIB if zlib_header else _RAW, output)


def _inflate(body: bytes, at: int, wbits: int, output: _Output) -> int:
    """Decode one stream from ``at``; returns the offset after it, or the body's length."""
    decoder = isal_zlib.decompressobj(wbits)
    while at < len(body) and not decoder.eof:
        window = body[at : at + WINDOW]
        try:
            # One byte more than fits tells a body at the cap from one over it.
            output.add(decoder.decompress(window, output.room + 1))
        except _DeflateError as e:
            raise DecodeFailed(f"broken deflate data: {e}") from e
        at += len(window) - len(decoder.unused_data)
    return at


def _brotli(body: bytes, output: _Output) -> None:
    decoder = brotli.Decompressor()
    data = body
    try:
        while not decoder.is_finished():
            piece = decoder.process(data, output_buffer_limit=min(STEP, output.room + 1))
            output.add(piece)
            if not piece and decoder.can_accept_more_data():
                return
            data = b""
    except brotli.error as e:
        raise DecodeFailed(f"broken brotli data: {e}") from e


def _zstd(body: bytes, output: _Output) -> None:
    at = 0
    for _ in range(MEMBERS_CAP):
        at = _unpack_frame(body, at, output)
        if at == len(body):
            return
    raise DecodeFailed(f"more than {MEMBERS_CAP} zstd frames")


def _unpack_frame(body: bytes, at: int, output: _Output) -> int:
    """Decode one zstd frame from ``at``; returns the offset after it, or the body's length."""
    decoder = ZstdDecompressor(options={DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})
    while at < len(body) and not decoder.eof:
        window = body[at : at + WINDOW]
        try:
            output.add(decoder.decompress(window, output.room + 1))
        except ZstdError as e:
            raise DecodeFailed(f"broken zstd data: {e}") from e
        at += len(window) - len(decoder.unused_data)
    return at


_DECODERS: dict[bytes, Callable[[bytes, _Output], None]] = {
    b"identity": _identity,
    b"gzip": _gzip,
    b"x-gzip": _gzip,
    b"deflate": _deflate,
    b"br": _brotli,
    b"zstd": _zstd,
}
