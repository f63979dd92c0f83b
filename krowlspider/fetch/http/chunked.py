"""Read the chunked transfer coding incrementally (RFC 9112, section 7.1)."""

from __future__ import annotations

import re
from array import array
from enum import Enum, auto

from krowlspider.fetch.errors import ProtocolBroken

# Any number of zeros may precede the digits.
_SIZE_LINE = re.compile(
    rb"[ \t]*+(0++[0-9A-Fa-f]{0,15}|[0-9A-Fa-f]{1,15})[ \t]*+(?:;.*+|\r?)", re.DOTALL
)
# The start of such a line, which may be cut off anywhere.
_SIZE_START = re.compile(
    rb"[ \t]*+(?:(?:0++[0-9A-Fa-f]{0,15}|[0-9A-Fa-f]{1,15})[ \t]*+(?:;.*+|\r?))?", re.DOTALL
)
# Bytes of framing (size lines, extensions, trailers) for a body, and more for each byte of it:
# one-byte chunks take five. The size cap counts data only, so it does not bound framing.
FRAMING_CAP = 64 * 1024
FRAMING_PER_BYTE = 8
# Chunks that a body may have, and one more for each BYTES_PER_CHUNK bytes: each chunk takes time on
# the event loop, and a large body in one-byte chunks would hold it.
CHUNKS_CAP = 20_000
BYTES_PER_CHUNK = 64


class _At(Enum):
    SIZE = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILER = auto()
    END = auto()


class ChunkedDecoder:
    """Takes the bytes of a body as they come, and keeps only the positions of its chunks.

    ``size`` is the number of bytes in the chunks. Their data is also appended to ``pieces``.
    """

    def __init__(self, pieces: list[bytes] | None = None) -> None:
        self._pieces = pieces
        self.size = 0
        # Positions of the chunks' data in all that was fed. Arrays, as there may be 180,000 chunks.
        self._starts = array("Q")
        self._ends = array("Q")
        self._fed = 0
        self._at = _At.SIZE
        # The start of a line whose end has not come.
        self._line_start = b""
        # Bytes of the current chunk that are still to come.
        self._left = 0
        self._framing = 0
        self._chunks = 0
        # Whether a line that should be the size of a chunk was none.
        self._refused = False

    @property
    def data_ended(self) -> bool:
        """Return whether the last chunk has been read; only trailers can be missing."""
        return self._at is _At.TRAILER or self._at is _At.END

    def feed(self, data: bytes) -> int:
        """Take more bytes; return the offset in ``data`` where the body ended, or -1 if it goes on.

        :raises ProtocolBroken: the bytes are not chunked coding, or cost too much framing
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
                self._line_start += data[at:]
                # Each read copies them, so they must stay few.
                if len(self._line_start) > FRAMING_CAP:
                    raise ProtocolBroken("a chunk extension or trailer without end")
                self._spend(0)
                return -1
            line = self._line_start + data[at:end]
            self._line_start = b""
            at = end + 1
            self._spend(len(line) + 1)
            self._line(line)
        return at

    @property
    def _is_plain(self) -> bool:
        """Whether the body does not begin with the size of a chunk."""
        return not self._chunks and (
            self._refused or _SIZE_START.fullmatch(self._line_start) is None
        )

    def body_in(self, stream: bytes | memoryview) -> bytes:
        """Return the data of the chunks. ``stream`` is all the bytes that were fed.

        They are the body if they begin with no size of a chunk: the header was wrong.
        """
        view = memoryview(stream)
        if self._is_plain:
            return bytes(view)
        spans = zip(self._starts, self._ends, strict=True)
        return b"".join([view[start:end] for start, end in spans])

    def _take(self, data: bytes, at: int) -> int:
        end = min(at + self._left, len(data))
        before = self._fed - len(data)
        if self._ends and self._ends[-1] == before + at:
            # The data continues the chunk of the previous read.
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
        if self._framing + len(self._line_start) > FRAMING_CAP + FRAMING_PER_BYTE * self.size:
            raise ProtocolBroken("chunk extensions or trailers without end")

    def _line(self, line: bytes) -> None:
        if self._at is _At.SIZE:
            matched = _SIZE_LINE.fullmatch(line)
            if matched is None:
                self._refused = True
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
