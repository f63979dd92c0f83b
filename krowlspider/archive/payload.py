"""The payload of an HTTP message: its entity, transfer coding removed (WARC 1.1, 6.3.2)."""

from __future__ import annotations

import re

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_CHUNKED = re.compile(rb"\ntransfer-encoding[ \t]*:[^\n]*\bchunked[ \t]*\r?\n", re.IGNORECASE)
# RFC 9112, 4 and 5: a status line, then fields without folds or stray lines.
_REGULAR_HEAD = re.compile(rb"HTTP/[^\r\n\0]*(?:\r\n[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n\0]*)*")
# RFC 9112, 7.1: the size in hexadecimal, and perhaps extensions after a semicolon.
# Fifteen digits, because sixteen may not fit a position in memory.
_CHUNK_SIZE = re.compile(rb"0*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]*)?\r?\n")
_CHUNK_END = re.compile(rb"\r?\n")


def payload_of(message: bytes) -> bytes:
    """The payload of a request or response, cut off where the message is cut off or broken."""
    end = _HEAD_END.search(message)
    if end is None:
        return b""
    if _CHUNKED.search(message, 0, end.end()):
        return _dechunk(message, end.end())
    return message[end.end() :]


def is_plain(message: bytes, payload: bytes) -> bool:
    """Whether every reader finds this payload in the message: a regular head, and no transfer coding."""
    end = message.find(b"\r\n\r\n")
    return (
        end != -1
        and _REGULAR_HEAD.fullmatch(message, 0, end) is not None
        and len(message) == end + 4 + len(payload)
        and message.endswith(payload)
    )


def _dechunk(message: bytes, position: int) -> bytes:
    chunks = []
    while size := _CHUNK_SIZE.match(message, position):
        length = int(size[1], 16)
        chunks.append(message[size.end() : size.end() + length])
        line_end = _CHUNK_END.match(message, size.end() + length)
        if not length or line_end is None:
            break
        position = line_end.end()
    return b"".join(chunks)
