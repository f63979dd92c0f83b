"""Read one response from the bytes of a connection, chunked or not. Pure: no socket, no clock."""

from __future__ import annotations

import re
from array import array
from enum import Enum, auto
from typing import TYPE_CHECKING

from krowlspider.fetch.errors import ConnectionLost, Observer, ProtocolBroken, TooLarge
from krowlspider.fetch.http.head import BLANKS, HEAD_CAP, HEAD_END, Framing, Head, parse_head

if TYPE_CHECKING:
    from collections.abc import Callable

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


class ResponseReader:
    """Takes the bytes that the server sends until ``done``, and keeps them all.

    ``max_size`` caps the body in bytes, as received; at most one read beyond it is kept.
    """

    def __init__(self, method: str, max_size: int, observer: Observer | None = None) -> None:
        self._method = method
        self._max_size = max_size
        self._observer = observer
        # The bytes of a head that is not complete, and how many of them hold no end.
        self._start = b""
        self._searched = 0
        # Bytes of interim responses.
        self._interim = 0
        self._raw: list[bytes] = []
        # Bytes of a body that is not chunked: received, and still to come by Content-Length.
        self._size = 0
        self._left = 0
        self._chunks: ChunkedDecoder | None = None
        # The body pieces that the observer has not received yet.
        self._pieces: list[bytes] = []
        self.head: Head | None = None
        self.head_length = 0
        self.done = False
        self.extra = False
        """Whether bytes came after the end, so that the connection is out of step."""

    @property
    def reusable(self) -> bool:
        """Return whether another request may follow on this connection."""
        return self.done and not self.extra and self.head is not None and self.head.keep_alive

    @property
    def ends_at_close(self) -> bool:
        """Return whether only the end of the connection ends the body."""
        return not self.done and self.head is not None and self.head.framing is Framing.CLOSE

    @property
    def received(self) -> int:
        """The bytes received: heads, and the body without its transfer coding."""
        return self._interim + len(self._start) + self.head_length + self.body_size

    @property
    def body_size(self) -> int:
        """The bytes of the body that were received, without its transfer coding."""
        return self._size if self._chunks is None else self._chunks.size

    @property
    def response_bytes(self) -> bytes:
        """The bytes from the final status line to the end, or to the last byte received, and the
        blanks before that line."""
        return b"".join(self._raw)

    def take(self) -> list[bytes]:
        """Return the bytes received since the last call; they are kept no longer."""
        raw, self._raw = self._raw, []
        return raw

    @property
    def dechunk(self) -> Callable[[memoryview], bytes] | None:
        """What returns the body in the bytes after the head, if it is chunked."""
        return None if self._chunks is None else self._chunks.body_in

    def body_of(self, response: bytes) -> bytes:
        """Return the body of ``response``, which is ``response_bytes``, without transfer coding."""
        if self._chunks is not None:
            return self._chunks.body_in(memoryview(response)[self.head_length :])
        return response[self.head_length :]

    def feed(self, data: bytes) -> None:
        """Take received bytes.

        :raises ProtocolBroken: the response is invalid or cannot be framed
        :raises TooLarge: the body is larger than ``max_size``
        """
        if self.done:
            self.extra = True
        elif self.head is not None:
            self._body(data)
        else:
            self._find_head(data)

    def eof(self) -> None:
        """Handle the orderly close of the server's side. Raises ConnectionLost if it cuts short."""
        if self.done:
            return
        if self.head is None:
            raise ConnectionLost("closed before the end of the response's head")
        chunks_over = self._chunks is not None and self._chunks.data_ended
        if self.head.framing is not Framing.CLOSE and not chunks_over:
            raise ConnectionLost("closed before the end of the response's body")
        self.extra = True
        self.done = True

    def _find_head(self, data: bytes) -> None:
        self._start += data
        while self.head is None:
            if self._start[:5] != b"HTTP/"[: len(self._start)]:
                self._skip_blanks()
            found = HEAD_END.search(self._start, self._searched)
            end = found.end() if found else len(self._start)
            if self._interim + end > HEAD_CAP:
                raise ProtocolBroken(f"a head of more than {HEAD_CAP} bytes")
            if not found:
                self._searched = max(0, end - 2)
                return
            self._read_head(end)

    def _skip_blanks(self) -> None:
        """Search for the end behind the blanks before a status line, which are kept.

        :raises ProtocolBroken: something else follows them
        """
        start = self._start
        blanks = BLANKS.match(start)
        assert blanks is not None
        begun = start[blanks.end() : blanks.end() + 4]
        if begun.upper() != b"HTTP"[: len(begun)]:
            raise ProtocolBroken(f"not an HTTP/1 response: {start[:20]!r}")
        self._searched = max(self._searched, blanks.end())

    def _read_head(self, end: int) -> None:
        start = self._start
        head = parse_head(start[:end], self._method)
        if 100 <= head.status < 200:
            self._start = start[end:]
            self._searched = 0
            self._interim += end
            return
        self._start = b""
        self.head = head
        self.head_length = end
        self._left = head.length
        if head.framing is Framing.CHUNKED:
            self._chunks = ChunkedDecoder(None if self._observer is None else self._pieces)
        self.done = head.framing is Framing.NONE
        if self._observer is not None:
            self._observer.headers(head.status, head.headers)
        if self.done or self._chunks is not None:
            self._raw.append(start[:end])
            if rest := start[end:]:
                self.feed(rest)
        else:
            # Most responses come in one piece, which is not copied.
            self._body(start, end)

    def _body(self, data: bytes, start: int = 0) -> None:
        """Take bytes, of which those from ``start`` on are of the body."""
        if self._chunks is not None:
            self._chunked(self._chunks, data)
            return
        assert self.head is not None
        size = len(data) - start
        if self.head.framing is Framing.LENGTH:
            if size > self._left:
                size = self._left
                data = data[: start + size]
                self.extra = True
            self._left -= size
            self.done = not self._left
        self._raw.append(data)
        self._size += size
        self._check_size(self._size)
        if size and self._observer is not None:
            self._observer.data(data[start:])

    def _chunked(self, chunks: ChunkedDecoder, data: bytes) -> None:
        self._raw.append(data)
        end = chunks.feed(data)
        if end >= 0:
            self.done = True
            if end < len(data):
                self._raw[-1] = data[:end]
                self.extra = True
        self._check_size(chunks.size)
        if self._observer is not None and self._pieces:
            piece = b"".join(self._pieces)
            self._pieces.clear()
            self._observer.data(piece)

    def _check_size(self, size: int) -> None:
        if size > self._max_size:
            self.done = False
            raise TooLarge(f"a body of more than {self._max_size} bytes")
