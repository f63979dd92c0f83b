"""What one fetch leaves behind, and how a caller watches it while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Dialled:
    """What opening a connection took: the look-up of the name, TCP, and TLS (0 without it); seconds."""

    name: float = 0.0
    connect: float = 0.0
    tls: float = 0.0


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and its final response, verbatim for the archive and parsed for the crawler.

    A partial one (``truncated`` not empty) holds whatever had been received when it ended.
    """

    url: str
    method: str
    request_bytes: bytes
    """Exactly as sent."""
    response_bytes: bytes
    """Exactly as received, from the final response's status line to its end; interim (1xx) responses
    and bytes after the end are not part of it."""
    head_length: int
    """``response_bytes[:head_length]`` is the status line, the headers and the blank line."""
    status: int
    reason: bytes
    version: str
    """"1.1", or "1.0" for a server that says so."""
    headers: Headers
    """In order, names in the server's own case, values stripped."""
    body: bytes
    """Transfer coding removed, content coding kept: the payload of WARC 1.1, section 6.3.2."""
    address: str
    """The peer's IP address as text."""
    started: float
    """Epoch seconds (wall clock) when the request began to be sent."""
    latency: float
    """Seconds from the request sent to the first byte of any answer; as all here, by a
    `LoopClock`."""
    duration: float
    """Seconds from the call of ``fetch()`` to the end."""
    truncated: str
    """"", "length", "time" or "disconnect": the values of WARC-Truncated."""
    tls: tuple[str, str] | None
    """Protocol version and cipher, None for plain HTTP."""
    certificate: bytes | None
    """The server's certificate, DER."""
    reused: bool
    """Whether the connection had served an earlier exchange."""
    dialled: Dialled
    """What it took to open the connection, however long ago."""


class StopFetch(Exception):
    """Raised by an observer that has seen enough: the fetch ends, keeping what there is."""


class Observer(Protocol):
    """Watches a response arrive. Called on the event loop, between reads; must not block."""

    def headers(self, status: int, headers: Headers) -> None:
        """The final response's head is here. May raise StopFetch."""

    def data(self, chunk: bytes) -> None:
        """A piece of the body, transfer coding removed. May raise StopFetch."""
