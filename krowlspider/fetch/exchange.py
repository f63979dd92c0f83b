"""The record of one fetch, and the observer of a fetch in progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Dialled:
    """Seconds that opening a connection took: name look-up, TCP, and TLS (0 without it)."""

    name: float = 0.0
    connect: float = 0.0
    tls: float = 0.0


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and its final response, verbatim for the archive and parsed for the crawler.

    A partial exchange (``truncated`` is not empty) holds what had been received when it ended.
    """

    url: str
    method: str
    request_bytes: bytes
    """Exactly as sent."""
    response_bytes: bytes
    """The bytes received, from the final response's status line to its end.

    Interim (1xx) responses and bytes after the end are left out.
    """
    head_length: int
    """``response_bytes[:head_length]`` is the status line, the headers and the blank line."""
    status: int
    reason: bytes
    version: str
    """``1.0`` if the server sent that, else ``1.1``."""
    headers: Headers
    """In order, with names in the server's own case and values stripped."""
    body: bytes
    """Transfer coding removed, content coding kept: the payload of WARC 1.1, section 6.3.2."""
    address: str
    """The peer's IP address as text."""
    started: float
    """Epoch seconds (wall clock) when the request began to be sent."""
    latency: float
    """Seconds of a `LoopClock` from the request sent to the first byte of any answer."""
    duration: float
    """Seconds of a `LoopClock` from the call of ``fetch()`` to the end."""
    truncated: str
    """Empty, or a value of WARC-Truncated: ``length``, ``time`` or ``disconnect``."""
    tls: tuple[str, str] | None
    """Protocol version and cipher; None for plain HTTP."""
    certificate: bytes | None
    """The server's certificate in DER; None for plain HTTP."""
    reused: bool
    """Whether the connection had served an earlier exchange."""
    dialled: Dialled
    """The times of opening the connection, however long ago."""


class StopFetch(Exception):
    """Raised by an observer to end the fetch; what was received is kept."""


class Observer(Protocol):
    """Watches a response arrive. Called on the event loop between reads; must not block."""

    def headers(self, status: int, headers: Headers) -> None:
        """Handle the final response's head.

        :raises StopFetch: to end the fetch
        """

    def data(self, chunk: bytes) -> None:
        """Handle a piece of the body, with the transfer coding removed.

        :raises StopFetch: to end the fetch
        """
