"""The chunked transfer coding, read incrementally (RFC 9112, section 7.1)."""

from __future__ import annotations

import re
from array import array
from enum import Enum, auto

from krowlspider.fetch.errors import ProtocolBroken

# Any zeros may stand before the digits.
_SIZE_LINE = re.compile(
    rb"[ \t]*+(0++[0-9A-Fa-f]{0,15}|[0-9A-Fa-f]{1,15})[ \t]*+(?:;.*+|\r?)", re.DOTALL
)
# Bytes of framing (size lines, extensions, trailers) that a body may cost, and those more for each
# byte of it: one-byte chunks take five. Without it, extensions would carry any amount past the
# size cap, which counts the body alone.
FRAMING_CAP = 64 * 1024
FRAMING_PER_BYTE = 8
# Chunks that a body may have, and one more for so many bytes: each takes 5 µs of the event loop, and 10 MB in chunks of
# one byte would take a minute.
CHUNKS_CAP = 20_000
BYTES_PER_CHUNK = 64


class _At(Enum):
    SIZE = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILER = auto()
    END = auto()


class ChunkedDecoder:
    """Takes a body's bytes as they come, and keeps none: only where its chunks lie. ``size`` are
    the bytes that they hold, which are also put into ``pieces``, where those are wanted as they
    come."""

    __slots__ = (
        *("_at", "_chunks", "_ends", "_fed", "_framing", "_held", "_left", "_pieces"),
        *("_starts", "size"),
    )

    def __init__(self, pieces: list[bytes] | None = None) -> None:
        self._pieces = pieces
        self.size = 0
        # Of the chunks' data, in all that was fed; not objects, as there may be 180,000.
        self._starts = array("Q")
        self._ends = array("Q")
        self._fed = 0
        self._at = _At.SIZE
        self._held = b""
        self._left = 0
        self._framing = 0
        self._chunks = 0

    @property
    def data_ended(self) -> bool:
        """Whether the last chunk has been read; only trailers can be missing."""
        return self._at is _At.TRAILER or self._at is _At.END

    def feed(self, data: bytes) -> int:
        """Take more bytes. Returns the offset in ``data`` where the body ended, or -1: not yet.

        Raises ProtocolBroken for what is not chunked coding, or costs too much framing.
        """
        at = 0
        self._fed += len(data)
        while self._at is not _At.END:
            if self._at is _At.DATA:
                at = self._take(data, at)
                if self._left:
                    return -1
                self._at = _At.DATA_END
            end = data.find(b"\n", at)
            if end < 0:
                self._held += data[at:]
                # Each read copies what is held.
                if len(self._held) > FRAMING_CAP:
                    raise ProtocolBroken("a chunk extension or trailer without end")
                self._spend(0)
                return -1
            line = self._held + data[at:end]
            self._held = b""
            at = end + 1
            self._spend(len(line) + 1)
            self._line(line)
        return at

    def body_in(self, stream: bytes | memoryview) -> bytes:
        """What the chunks hold, given all that was fed."""
        view = memoryview(stream)
        spans = zip(self._starts, self._ends, strict=True)
        return b"".join([view[start:end] for start, end in spans])

    def _take(self, data: bytes, at: int) -> int:
        end = min(at + self._left, len(data))
        before = self._fed - len(data)
        if self._ends and self._ends[-1] == before + at:
            # A chunk that goes on from the last time.
            self._ends[-1] = before + end
        elif end > at:
            self._starts.append(before + at)
            self._ends.append(before + end)
        if self._pieces is not None and end > at:
            self._pieces.append(data[at:end])
        self.size += end - at
        self._left -= end - at
        return end

    def _spend(self, count: int) -> None:
        self._framing += count
        if self._framing + len(self._held) > FRAMING_CAP + FRAMING_PER_BYTE * self.size:
            raise ProtocolBroken("chunk extensions or trailers without end")

    def _line(self, line: bytes) -> None:
        if self._at is _At.SIZE:
            matched = _SIZE_LINE.fullmatch(line)
            if matched is None:
                raise ProtocolBroken(f"not a chunk size: {line[:40]!r}")
            self._left = int(matched[1], 16)
            self._chunks += 1
            if self._chunks > CHUNKS_CAP + self.size // BYTES_PER_CHUNK:
                raise ProtocolBroken("a body of tiny chunks")
            self._at = _At.DATA if self._left else _At.TRAILER
        elif self._at is _At.DATA_END:
            if line not in (b"\r", b""):
                raise ProtocolBroken(f"a chunk runs over its size: {line[:40]!r}")
            self._at = _At.SIZE
        elif line in (b"\r", b""):
            self._at = _At.END
