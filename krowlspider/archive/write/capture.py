"""The objects handed to the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable


class Wire(NamedTuple):
    """How the messages of a capture travelled.

    ``address`` is the origin's IP address as text, None if a proxy hides it. ``version`` is that of
    HTTP. ``tls`` is the protocol and the cipher by OpenSSL's names, None for plain HTTP.
    """

    address: str | None
    version: str = "1.1"
    tls: tuple[str, str] | None = None


class Capture(Struct, eq=False):
    """One HTTP exchange as it was on the wire.

    ``identity`` is the WARC-Record-ID of the response. ``url`` is escaped, without whitespace. The
    first ``head`` bytes of the response are status line, headers and the blank line. ``payload`` is
    the entity: after transfer decoding, before content decoding. ``media_type`` is the value of
    Content-Type, ``""`` without one. ``started`` is in seconds since the epoch. ``truncated`` is
    ``""``, or why the response is not whole: ``"length"``, ``"time"``, ``"disconnect"``.

    Of a large response ``response_bytes`` and ``payload`` are empty until the writer calls
    ``stored``, which returns both from a file of ``stored_size`` bytes.
    """

    identity: str
    url: str
    request_bytes: bytes
    response_bytes: bytes | memoryview
    head: int
    payload: bytes | memoryview
    status: int
    media_type: str
    started: float
    truncated: str
    wire: Wire
    stored: Callable[[], tuple[memoryview, memoryview | bytes]] | None = None
    stored_size: int = 0

    @property
    def size(self) -> int:
        """The bytes this capture holds in memory, without the fixed cost of the object."""
        return len(self.request_bytes) + len(self.response_bytes) + len(self.payload)


class FetchNote(Struct, eq=False):
    """A note about a fetch, for a metadata record.

    ``fields`` are those of WARC 1.1, section 6.6, and the crawler's own. ``concurrent`` is the
    identity of the fetch's response. ``started`` is in seconds since the epoch.
    """

    url: str
    started: float
    fields: list[tuple[str, str]]
    concurrent: str | None = None

    @property
    def size(self) -> int:
        """The characters of its names and values, about its bytes in memory."""
        return sum(len(name) + len(value) for name, value in self.fields)


class Resource(Struct, eq=False):
    """The content of a resource record: the seeds of a start, or an answer of the DNS.

    ``started`` is in seconds since the epoch. ``truncated`` is whether ``block`` is only the
    beginning.
    """

    url: str
    started: float
    media_type: str
    block: bytes
    truncated: bool = False
