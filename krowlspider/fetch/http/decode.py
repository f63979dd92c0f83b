"""Undo content codings of fetched and of stored bodies, within bounds (RFC 9110, section 8.4).

Input, output and CPU time of a fetched body are bounded. The input of a decoder is bounded like its
output: a few bytes of one coding can become megabytes of empty blocks of the next.

Many archives store a body decoded, and its headers as they came. So a coding that the header of a
stored body names is undone only if the body shows it.
"""

from __future__ import annotations

import re
from functools import partial
from math import inf
from time import thread_time
from typing import TYPE_CHECKING, cast

import brotli
from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
from isal import igzip_lib

from krowlspider.fetch.errors import DecodeFailed, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Servers chain two codings at most.
CODINGS_CAP = 2
# Ordinary bodies are one gzip member; log files and block-compressed archives have hundreds.
MEMBERS_CAP = 1000
# Bytes of input that may yield no output (twice the longest zstd block), and as many more for each
# byte of output. Legitimate codings stay below: a stream flushed at every word doubles its data.
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
_GZIP_MAGIC = b"\x1f\x8b"
# The stub types the exception class as an instance.
_ERRORS = (cast("type[Exception]", igzip_lib.error), brotli.error, ZstdError)


class Decoding:
    """Undoes the codings of a Content-Encoding value, the last one first, in bounded steps.

    A body that is cut short yields what could be decoded. Decoding stops at an unknown coding
    ("utf-8", "none"), as browsers leave such a body as it is. ``cap`` is the most bytes that any
    coding may yield; with ``cuts``, the rest is not decoded. ``clock`` returns the CPU seconds of
    the calling thread.
    """

    def __init__(
        self,
        body: bytes,
        encodings: bytes,
        cap: int,
        clock: Callable[[], float] = thread_time,
        *,
        cuts: bool = False,
    ) -> None:
        self._clock = clock
        self._cuts = cuts
        self._cpu_left = CPU_BASE + CPU_PER_BYTE * cap
        self.sizes = _FIRST
        self.body = body
        """The decoded body, once `run` has returned True."""
        self.ended = True
        """Whether the last stream that was decoded has come to its end."""
        self._cap = cap
        # Of the coding that is being undone: input bytes taken, room for output, and output.
        self._at = 0
        self._room = cap
        self._pieces: list[bytes] = []
        self._steps = self._undo(encodings)

    def run(self, seconds: float = inf) -> bool:
        """Decode for about ``seconds`` CPU seconds; return whether decoding is finished.

        :raises TooLarge: a coding yields more than ``cap`` bytes, without ``cuts``
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

    def _undo(self, encodings: bytes) -> Iterator[None]:
        codings = codings_in(encodings)
        if len(codings) > CODINGS_CAP:
            raise DecodeFailed(f"{len(codings)} content codings, one upon the other")
        for coding in reversed(codings):
            decode = DECODERS.get(coding)
            if decode is None:
                return
            if self.body:
                self._at, self._room = 0, self._cap
                try:
                    yield from decode(self)
                except _ERRORS as e:
                    raise DecodeFailed(f"broken {coding.decode()} data: {e}") from e
                except TooLarge:
                    if not self._cuts:
                        raise
                # A body may wait for the event loop once it is decoded: do not keep it twice.
                self.body, self._pieces = b"".join(self._pieces)[: self._cap], []

    def _gzip(self) -> Iterator[None]:
        make = partial(igzip_lib.IgzipDecompressor, flag=igzip_lib.DECOMP_GZIP)
        # Data after the last member that is no member is padding, or garbage.
        return self._streams(make, lambda: self.body.startswith(_GZIP_MAGIC, self._at))

    def _deflate(self) -> Iterator[None]:
        # "deflate" is the zlib format (RFC 9110, section 8.4.1.2), but some servers send raw
        # deflate.
        flag = igzip_lib.DECOMP_ZLIB if is_zlib(self.body) else igzip_lib.DECOMP_DEFLATE
        return self._stream(igzip_lib.IgzipDecompressor(flag=flag))

    def _brotli(self) -> Iterator[None]:
        return self._stream(_Brotli())

    def _zstd(self) -> Iterator[None]:
        options: dict[int, int] = {DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG}
        return self._streams(partial(ZstdDecompressor, options=options), lambda: not self._is_over)

    def _streams(
        self, make: Callable[[], _Decompressor], goes_on: Callable[[], bool]
    ) -> Iterator[None]:
        """Decode one stream after another while ``goes_on`` returns true."""
        for _ in range(MEMBERS_CAP):
            yield from self._stream(make())
            if not goes_on():
                return
            yield
        raise DecodeFailed(f"more than {MEMBERS_CAP} members")

    def _stream(self, decoder: _Decompressor) -> Iterator[None]:
        """Decode one stream, up to its end or the end of the input."""
        data, self.ended = self._take(), False
        while True:
            # One byte more than fits, to distinguish a body at the cap from one over it.
            piece = decoder.decompress(data, min(self.sizes[1], self._room + 1))
            self._add(piece)
            if decoder.eof:
                self._at -= len(decoder.unused_data)
                self.ended = True
                return
            data = b""
            if decoder.needs_input:
                if self._is_over and not piece:
                    return
                data = self._take()
            yield

    @property
    def _is_over(self) -> bool:
        return self._at >= len(self.body)

    def _take(self) -> bytes:
        piece = self.body[self._at : self._at + self.sizes[0]]
        self._at += len(piece)
        return piece

    def _add(self, piece: bytes) -> None:
        self._room -= len(piece)
        self._pieces.append(piece)
        if self._room < 0:
            raise TooLarge(f"more than {self._cap} bytes once decoded")
        if self._at > IDLE_INPUT + INPUT_PER_BYTE * (self._cap - self._room):
            raise DecodeFailed(f"{self._at} bytes that decode to next to nothing")


class _Brotli:
    """A brotli decompressor with the interface of the others."""

    unused_data = b""

    def __init__(self) -> None:
        self._decoder = brotli.Decompressor()

    @property
    def eof(self) -> bool:
        return bool(self._decoder.is_finished())

    @property
    def needs_input(self) -> bool:
        return bool(self._decoder.can_accept_more_data())

    def decompress(self, data: bytes, max_length: int) -> bytes:
        piece: bytes = self._decoder.process(data, output_buffer_limit=max_length)
        return piece


_Decompressor = igzip_lib.IgzipDecompressor | ZstdDecompressor | _Brotli
DECODERS: dict[bytes, Callable[[Decoding], Iterator[None]]] = {
    b"gzip": Decoding._gzip,
    b"x-gzip": Decoding._gzip,
    b"deflate": Decoding._deflate,
    b"br": Decoding._brotli,
    b"zstd": Decoding._zstd,
}


def decode_body(body: bytes, encodings: bytes, cap: int) -> bytes:
    """Return the body without its codings. Raises the errors of `Decoding.run`."""
    decoding = Decoding(body, encodings, cap)
    decoding.run()
    return decoding.body


def codings_in(encodings: bytes) -> list[bytes]:
    """Return the codings of a Content-Encoding value, in lower case."""
    parts = [part.strip() for part in encodings.lower().split(b",")]
    return [part for part in parts if part and part != b"identity"]


def is_zlib(body: bytes) -> bool:
    """Return whether a body begins with the header of zlib (RFC 1950, section 2.2)."""
    return body[0] & 0x0F == 8 and int.from_bytes(body[:2], "big") % 31 == 0


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
