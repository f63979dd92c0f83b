"""What a program and the process of its crawl say to each other over a socket.

The program sends one frame, a `CrawlOrder`. From then on it sends one `TAKEN` for each page, in
the order in which the pages came; once it sends no more, the crawl stops. The crawl sends frames:
pages, lines of its log and stats, and at last a `CrawlEnd`. A frame is its length in four bytes,
big-endian, and a message in MessagePack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from krowlspider.library.page import Page

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from socket import socket

TAKEN = b"t"
_LENGTH = 4
_BITS = 64


class CrawlOrder(msgspec.Struct, frozen=True):
    """What a program asks for.

    ``seeds`` are lines with one seed each, ``file`` a file of such lines. ``arguments`` are those
    of the broad spider. ``temporary``: the folder ``jobdir`` is removed at the end.
    """

    seeds: list[str]
    file: str | None
    jobdir: str
    temporary: bool
    arguments: dict[str, str]
    settings: dict[str, Any]


class LogLine(msgspec.Struct, frozen=True, tag="line"):
    """A line of the log; ``created`` is in epoch seconds."""

    logger: str
    level: int
    text: str
    created: float


class Stats(msgspec.Struct, frozen=True, tag="stats"):
    """The stats of Scrapy, as they are now."""

    stats: dict[str, Any]


class CrawlFault(msgspec.Struct, frozen=True):
    """Why a crawl has failed: name of a class of `krowlspider.errors`, and message."""

    error: str
    why: str


class CrawlEnd(msgspec.Struct, frozen=True, tag="end"):
    """The crawl is over; ``fault`` is None if it has not failed."""

    fault: CrawlFault | None
    stats: dict[str, Any]


Message: TypeAlias = Page | LogLine | Stats | CrawlEnd

_encoder = msgspec.msgpack.Encoder(enc_hook=str)
# What MessagePack cannot hold, in lines and stats of a user's classes: names of files that are no
# text, whole numbers beyond 64 bits, keys of other types.
_NOT_HELD = (UnicodeEncodeError, OverflowError, TypeError)
_decode: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(
    Page | LogLine | Stats | CrawlEnd
)
_decode_order = msgspec.msgpack.Decoder(CrawlOrder).decode


def frame(message: Message | CrawlOrder) -> bytearray:
    """Return a message as it is sent."""
    framed = bytearray(_LENGTH)
    try:
        _encoder.encode_into(message, framed, _LENGTH)
    except _NOT_HELD:
        if isinstance(message, CrawlOrder | Page):
            raise
        held = _as_text(msgspec.structs.asdict(message))
        _encoder.encode_into(msgspec.structs.replace(message, **held), framed, _LENGTH)
    framed[:_LENGTH] = (len(framed) - _LENGTH).to_bytes(_LENGTH, "big")
    return framed


def _as_text(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a mapping whose text is printable, and whose values are plain."""
    return {_printable(str(name)): _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return _as_text(value)
    if isinstance(value, CrawlFault):
        return CrawlFault(value.error, _printable(value.why))
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and value.bit_length() < _BITS:
        return value
    return _printable(str(value))


def _printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


class Frames:
    """Puts messages together again from what a socket gives."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that ``data`` completes."""
        received = self._received
        received += data
        start = 0
        try:
            while len(received) - start >= _LENGTH:
                body = start + _LENGTH
                end = body + int.from_bytes(received[start:body], "big")
                if len(received) < end:
                    return
                with memoryview(received) as view:
                    message = _decode.decode(view[body:end])
                start = end
                yield message
        finally:
            del received[:start]


def read_order(connection: socket) -> CrawlOrder:
    """Return the order of a program. Blocks.

    :raises EOFError: the program has gone
    """
    length = int.from_bytes(_exactly(connection, _LENGTH), "big")
    return _decode_order(_exactly(connection, length))


def _exactly(connection: socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        data = connection.recv(min(count - len(received), 1 << 20))
        if not data:
            raise EOFError("the program has gone")
        received += data
    return bytes(received)
