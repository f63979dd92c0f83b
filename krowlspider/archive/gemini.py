"""Gemini messages in WARC records: their status, media type and payload. Pure.

A response is a header line, two digits and META, and the body behind its line end. That is the
block of its record, byte for byte; the payload is the body. Records are told by their Content-Type,
``application/gemini; msgtype=response`` or ``request``, as in archives of other crawlers.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from krowlspider.urls.encoding import ContentType, content_type_of

TYPE = "application/gemini"
RESPONSE = f"{TYPE}; msgtype=response"
REQUEST = f"{TYPE}; msgtype=request"
# The media type of a record that has the certificate of a server.
CERTIFICATE = "application/x-pem-file"
GEMTEXT = "text/gemini"

# The status, a blank, META of at most 1,024 bytes and the line end, of which a server may leave
# the first byte away.
_HEADER = re.compile(rb"([1-6][0-9])(?:[ \t]([^\r\n]*+)|)\r?\n")
_HEADER_MAX = 2 + 1 + 1024 + 2


class GeminiMessage(NamedTuple):
    """What a response is. ``status`` and ``meta`` are empty if its header is none."""

    status: str
    meta: str
    payload: bytes

    @property
    def media_type(self) -> str:
        """The media type with parameters; "" unless the status is 20 to 29."""
        return (self.meta or GEMTEXT) if self.status[:1] == "2" else ""

    @property
    def type(self) -> ContentType:
        """The media type, and the charset: that of text is UTF-8 unless another one is named."""
        found = content_type_of([self.media_type.encode("latin-1")])
        if found.charset is None and found.essence.startswith("text/"):
            return ContentType(found.essence, "utf-8")
        return found


def is_gemini(content_type: str | None) -> bool:
    """Return whether a record with this Content-Type has a Gemini message."""
    return content_type is not None and content_type.startswith(TYPE)


def head_of(block: bytes | memoryview) -> bytes:
    """Return the header line of a response with its line end; empty if it has none."""
    found = _HEADER.match(bytes(block[:_HEADER_MAX]))
    return found[0] if found else b""


def read(block: bytes) -> GeminiMessage:
    """Return what a response is. One without a header that is allowed has no payload."""
    found = _HEADER.match(block, 0, _HEADER_MAX)
    if found is None:
        return GeminiMessage("", "", b"")
    meta = (found[2] or b"").decode("latin-1").strip()
    return GeminiMessage(found[1].decode(), meta, block[found.end() :])
