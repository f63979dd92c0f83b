"""Read one answer from the bytes of a connection. Pure: no socket, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.fetch.errors import ConnectionLost, ProtocolBroken, TooLarge
from krowlspider.fetch.http.head import Framing, Head
from krowlspider.gemini.protocol import (
    GEMTEXT,
    Header,
    MalformedHeader,
    StatusKind,
    meaning_of,
    read_header,
    seconds_in,
)

if TYPE_CHECKING:
    from krowlspider.fetch.errors import Headers, Observer

_FIELDS = {StatusKind.SUCCESS: b"Content-Type", StatusKind.REDIRECT: b"Location"}


def headers_of(header: Header) -> Headers:
    """Return the META of a header in the header field that HTTP has for it, else in ``Meta``.

    A success without META is text/gemini.
    """
    kind = meaning_of(header.status).kind
    if not header.meta:
        return [(b"Content-Type", GEMTEXT.encode())] if header.is_success else []
    name = _FIELDS.get(kind, b"Meta")
    if kind is StatusKind.SLOW_DOWN and seconds_in(header.meta) is not None:
        name = b"Retry-After"
    return [(name, header.meta.encode())]


class AnswerReader:
    """Takes the bytes that the server sends until ``done``, and keeps header and body.

    Only a success has a body, of at most ``max_size`` bytes and one read beyond it. The end of the
    connection ends it. After any other header the answer is over; what follows it is not kept.
    """

    reusable = False
    dechunk = None

    def __init__(self, max_size: int, observer: Observer | None = None) -> None:
        self._max_size = max_size
        self._observer = observer
        # The bytes of a header that is not complete.
        self._start = b""
        self._raw: list[bytes] = []
        self.head: Head | None = None
        self.head_length = 0
        self.body_size = 0
        self.meta = ""
        self.done = False

    @property
    def ends_at_close(self) -> bool:
        """Return whether only the end of the connection ends the body."""
        return self.head is not None and not self.done

    @property
    def received(self) -> int:
        """The bytes received."""
        return len(self._start) + self.head_length + self.body_size

    @property
    def response_bytes(self) -> bytes:
        """The bytes received that are the answer."""
        return b"".join(self._raw)

    def take(self) -> list[bytes]:
        """Return the bytes received since the last call; they are kept no longer."""
        raw, self._raw = self._raw, []
        return raw

    def body_of(self, response: bytes) -> bytes:
        """Return the body of ``response``, which is ``response_bytes``."""
        return response[self.head_length :]

    def feed(self, data: bytes) -> None:
        """Take received bytes.

        :raises ProtocolBroken: the header is malformed
        :raises TooLarge: the body is larger than ``max_size``
        """
        if self.head is not None:
            if not self.done:
                self._raw.append(data)
                self._body(data)
            return
        self._start += data
        try:
            header = read_header(self._start)
        except MalformedHeader as error:
            raise ProtocolBroken(f"malformed header: {error}") from error
        if header is not None:
            self._begin(header)

    def eof(self) -> None:
        """Handle the orderly close of the server's side. Raises ConnectionLost if it cuts short."""
        if self.head is None:
            raise ConnectionLost("closed before the end of the header")
        self.done = True

    def _begin(self, header: Header) -> None:
        start, self._start = self._start, b""
        fields = headers_of(header)
        self.head = Head(header.status, "", fields, Framing.CLOSE, 0, keep_alive=False)
        self.head_length = header.size
        self.meta = header.meta
        self.done = not header.is_success
        # Most answers come in one piece, which is not copied.
        self._raw.append(start[: header.size] if self.done else start)
        if self._observer is not None:
            self._observer.headers(header.status, fields)
        if not self.done and len(start) > header.size:
            self._body(start[header.size :])

    def _body(self, data: bytes) -> None:
        self.body_size += len(data)
        if self.body_size > self._max_size:
            raise TooLarge(f"a body of more than {self._max_size} bytes")
        if self._observer is not None:
            self._observer.data(data)
