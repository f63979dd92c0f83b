"""What is handed to the archive, and where it went."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Capture:
    """One exchange as it was on the wire.

    ``identity`` is the WARC-Record-ID of its response. ``url`` is the URL that was fetched, escaped,
    without whitespace. ``request_bytes`` and ``response_bytes`` are verbatim; the first ``head`` of
    these are status line, headers and the blank line. ``payload`` is the entity: after transfer
    decoding, before content decoding. ``media_type`` is what Content-Type says, ``""`` without one.
    ``address`` is the peer's IP address as text. ``started`` is in seconds since the epoch.
    ``truncated`` says why the response is not whole: ``"length"``, ``"time"``, ``"disconnect"``, or
    ``""`` when it is. ``version`` is HTTP's, ``tls`` the protocol and cipher by OpenSSL's names, None
    for plain HTTP.
    """

    identity: str
    url: str
    request_bytes: bytes
    response_bytes: bytes
    head: int
    payload: bytes
    status: int
    media_type: str
    address: str
    started: float
    truncated: str
    version: str = "1.1"
    tls: tuple[str, str] | None = None

    @property
    def size(self) -> int:
        """Bytes this capture holds in memory, the fixed cost of the object aside."""
        return len(self.request_bytes) + len(self.response_bytes) + len(self.payload)


@dataclass(slots=True, eq=False)
class Note:
    """What is to be said about a fetch, for a metadata record.

    ``fields`` are names and values as in WARC 1.1, section 6.6, and of our own. ``concurrent`` is the
    identity of the fetch's response, None when it has none. ``started`` is as of a capture.
    """

    url: str
    started: float
    fields: list[tuple[str, str]]
    concurrent: str | None = None

    @property
    def size(self) -> int:
        """Bytes that its values take."""
        return sum(len(name) + len(value) for name, value in self.fields)


@dataclass(slots=True, eq=False)
class NameAnswer:
    """What the DNS said of a name, for a resource record: its addresses as text, each with its time to
    live in seconds. ``started`` is as of a capture."""

    name: str
    started: float
    addresses: list[tuple[str, float]]

    size = 0


@dataclass(frozen=True, slots=True)
class Location:
    """Where a record lies: its file's final name, first byte, and compressed length."""

    file: str
    offset: int
    length: int
