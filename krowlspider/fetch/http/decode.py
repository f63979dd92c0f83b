"""Undo content codings, with bounds on input, output and CPU time (RFC 9110, section 8.4).

The input of a decoder is bounded like its output: a few bytes of one coding can become megabytes of
empty blocks of the next.
"""

from __future__ import annotations

from math import inf
from time import thread_time
from typing import TYPE_CHECKING, cast

import brotli
from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
from isal import isal_zlib

from krowlspider.fetch.errors import DecodeFailed, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Servers chain two codings at most.
CODINGS_CAP = 2
# Ordinary bodies are one gzip member; log files and block-compressed archives have hundreds.
MEMBERS_CAP = 1000
# Input that may yield nothing (twice the longest zstd block), and more for each byte of output.
# Legitimate codings stay below: a stream flushed at every word doubles its data.
IDLE_INPUT = 256 * 1024
INPUT_PER_BYTE = 16
# CPU seconds for one body, all codings together, and more for each byte of the cap: ten times what
# the slowest coding needs. Hostile blocks take a hundred times as long as others.
CPU_BASE = 0.5
CPU_PER_BYTE = 25e-9
# Input and output bytes of one step. The first steps are short. Later ones run in a thread, which
# waits for the GIL at each step, so they are longer.
_FIRST = 16 * 1024, 256 * 1024
_LATER = 256 * 1024, 1024 * 1024
_DONE = object()
ZSTD_WINDOW_LOG = 23  # 8 MiB: RFC 9659, what a decoder of this content coding must support

# The stub types the exception class as an instance.
_DeflateError = cast("type[Exception]", isal_zlib.error)
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP, _ZLIB, _RAW = 31, 15, -15  # zlib's ``wbits``


class Decoding:
    """Undoes the codings of a Content-Encoding value, the last one first, in bounded steps.

    A body that is cut short yields what could be decoded. Decoding stops at an unknown coding
    ("utf-8", "none"), as browsers leave such a body as it is. ``cap`` is the most bytes that any
    coding may yield. ``clock`` returns the CPU seconds of the calling thread.
    """

    __slots__ = ("_clock", "_cpu_left", "_steps", "body", "sizes")

    def __init__(
        self,
        body: bytes,
        encodings: bytes,
        cap: int,
        clock: Callable[[], float] = thread_time,
    ) -> None:
        self._clock = clock
        self._cpu_left = CPU_BASE + CPU_PER_BYTE * cap
        self.sizes = _FIRST
        self.body = body
        """The decoded body, once `run` has returned True."""
        self._steps = self._undo(encodings, cap)

    def run(self, seconds: float = inf) -> bool:
        """Decode for about ``seconds`` CPU seconds; return whether decoding is finished.

        :raises TooLarge: a coding yields more than ``cap`` bytes
        :raises DecodeFailed: the body is not in its coding, has more than CODINGS_CAP codings or
            MEMBERS_CAP members, decodes to next to nothing, or takes too much CPU
        """
        # An ordinary body takes one step, which is not worth a look at the clock.
        if next(self._steps, _DONE) is _DONE:
            return True
        begun = self._clock()
        for _ in self._steps:
            spent = self._clock() - begun
            if spent > self._cpu_left:
                raise DecodeFailed("decoding takes more CPU than any coding needs")
            if spent > seconds:
                self._cpu_left -= spent
                self.sizes = _LATER
                return False
        return True

    def _undo(self, encodings: bytes, cap: int) -> Iterator[None]:
        for coding in reversed(_codings(encodings)):
            decoder = _DECODERS.get(coding)
            if decoder is None:
                return
            if self.body:
                layer = _Layer(self, cap)
                yield from decoder(layer)
                self.body = layer.join()


def decode_body(body: bytes, encodings: bytes, cap: int) -> bytes:
    """Return the body without its codings.

    :raises TooLarge: as for `Decoding.run`
    :raises DecodeFailed: as for `Decoding.run`
    """
    decoding = Decoding(body, encodings, cap)
    decoding.run()
    return decoding.body


def _codings(encodings: bytes) -> list[bytes]:
    parts = [part.strip() for part in encodings.lower().split(b",")]
    codings = [part for part in parts if part and part != b"identity"]
    if len(codings) > CODINGS_CAP:
        raise DecodeFailed(f"{len(codings)} content codings, one upon the other")
    return codings


class _Layer:
    """One coding of a body: its input, of which ``at`` bytes are taken, and its output."""

    __slots__ = ("_body", "_cap", "_of", "_pieces", "_room", "at")

    def __init__(self, of: Decoding, cap: int) -> None:
        self._of = of
        self._body = of.body
        self._cap = self._room = cap
        self._pieces: list[bytes] = []
        self.at = 0

    @property
    def is_over(self) -> bool:
        """Return whether all input is taken."""
        return self.at >= len(self._body)

    @property
    def limit(self) -> int:
        """The most output bytes to take now.

        It allows one byte more than fits, to distinguish a body at the cap from one over it.
        """
        return min(self._of.sizes[1], self._room + 1)

    def peek(self, count: int) -> bytes:
        """Return the next ``count`` bytes of the input without taking them."""
        return self._body[self.at : self.at + count]

    def take(self) -> bytes:
        """Take and return the next piece of the input."""
        window = self._body[self.at : self.at + self._of.sizes[0]]
        self.at += len(window)
        return window

    def add(self, piece: bytes) -> None:
        """Keep a piece of output.

        :raises TooLarge: the output is over the cap
        :raises DecodeFailed: the output is too little for its input
        """
        self._room -= len(piece)
        if self._room < 0:
            raise TooLarge(f"more than {self._cap} bytes once decoded")
        if self.at > IDLE_INPUT + INPUT_PER_BYTE * (self._cap - self._room):
            raise DecodeFailed(f"{self.at} bytes that decode to next to nothing")
        self._pieces.append(piece)

    def join(self) -> bytes:
        return b"".join(self._pieces)


def _gzip(layer: _Layer) -> Iterator[None]:
    for _ in range(MEMBERS_CAP):
        yield from _inflate(layer, _GZIP)
        # Data after the last member that is no member is padding, or garbage.
        if layer.peek(2) != _GZIP_MAGIC:
            return
        yield
    raise DecodeFailed(f"more than {MEMBERS_CAP} gzip members")


def _deflate(layer: _Layer) -> Iterator[None]:
    # "deflate" is the zlib format (RFC 9110, section 8.4.1.2), but some servers send raw deflate.
    header = layer.peek(2)
    zlib_header = header[0] & 0x0F == 8 and int.from_bytes(header, "big") % 31 == 0
    return _inflate(layer, _ZLIB if zlib_header else _RAW)


def _inflate(layer: _Layer, wbits: int) -> Iterator[None]:
    """Decode one stream, up to its end or the end of the input."""
    decoder = isal_zlib.decompressobj(wbits)
    data = layer.take()
    while True:
        limit = layer.limit
        try:
            piece = decoder.decompress(data, limit)
        except _DeflateError as e:
            raise DecodeFailed(f"broken deflate data: {e}") from e
        layer.add(piece)
        if decoder.eof:
            layer.at -= len(decoder.unused_data)
            return
        data = decoder.unconsumed_tail
        if not data and len(piece) < limit:
            if layer.is_over:
                return
            data = layer.take()
        yield


def _brotli(layer: _Layer) -> Iterator[None]:
    decoder = brotli.Decompressor()
    data = layer.take()
    while True:
        try:
            piece = decoder.process(data, output_buffer_limit=layer.limit)
        except brotli.error as e:
            raise DecodeFailed(f"broken brotli data: {e}") from e
        layer.add(piece)
        if decoder.is_finished():
            return
        data = b""
        if decoder.can_accept_more_data():
            if layer.is_over and not piece:
                return
            data = layer.take()
        yield


def _zstd(layer: _Layer) -> Iterator[None]:
    for _ in range(MEMBERS_CAP):
        yield from _unpack_frame(layer)
        if layer.is_over:
            return
        yield
    raise DecodeFailed(f"more than {MEMBERS_CAP} zstd frames")


def _unpack_frame(layer: _Layer) -> Iterator[None]:
    """Decode one zstd frame, up to its end or the end of the input."""
    decoder = ZstdDecompressor(options={DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})
    data = layer.take()
    while True:
        try:
            piece = decoder.decompress(data, layer.limit)
        except ZstdError as e:
            raise DecodeFailed(f"broken zstd data: {e}") from e
        layer.add(piece)
        if decoder.eof:
            layer.at -= len(decoder.unused_data)
            return
        data = b""
        if decoder.needs_input:
            if layer.is_over:
                return
            data = layer.take()
        yield


_DECODERS: dict[bytes, Callable[[_Layer], Iterator[None]]] = {
    b"gzip": _gzip,
    b"x-gzip": _gzip,
    b"deflate": _deflate,
    b"br": _brotli,
    b"zstd": _zstd,
}
