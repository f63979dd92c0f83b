"""The record of one fetch, and the observer of a fetch in progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

Headers = list[tuple[bytes, bytes]]


class Peer(NamedTuple):
    """The other end of a connection: its IP address as text.

    With TLS also the protocol version and cipher, and the server's certificate in DER.
    """

    address: str
    tls: tuple[str, str] | None = None
    certificate: bytes | None = None


class Dialled(NamedTuple):
    """Seconds that opening a connection took: name look-up, TCP, and TLS (0 without it)."""

    name: float
    connect: float
    tls: float = 0.0


class Times(NamedTuple):
    """When an exchange began, and how long its parts took in seconds of a `LoopClock`.

    ``started`` is the epoch time at which the request began to be sent. ``latency`` is from there
    to the first byte of any answer, ``duration`` from the call of ``fetch()`` to the end.
    ``dialled`` is None if the connection had served an earlier exchange.
    """

    started: float
    latency: float
    duration: float
    dialled: Dialled | None


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and its final response, verbatim for the archive and parsed for the crawler.

    A partial exchange (``truncated`` is not empty) holds what had been received when it ended.
    """

    url: str
    request_bytes: bytes
    """Exactly as sent."""
    response_bytes: bytes
    """The bytes received, from the final response's status line to its end.

    Interim (1xx) responses and bytes after the end are left out.
    """
    head_length: int
    """``response_bytes[:head_length]`` is the status line, the headers and the blank line."""
    status: int
    version: str
    """``1.0`` if the server sent that, else ``1.1``."""
    headers: Headers
    """In order, with names in the server's own case and values stripped."""
    body: bytes
    """Transfer coding removed, content coding kept: the payload of WARC 1.1, section 6.3.2."""
    truncated: str
    """Empty, or a value of WARC-Truncated: ``length``, ``time`` or ``disconnect``."""
    peer: Peer
    times: Times


class StopFetch(Exception):
    """Raised by an observer to end the fetch; what was received is kept."""


class Observer(Protocol):
    """Watches a response arrive. Called on the event loop between reads; must not block.

    Both methods may raise StopFetch.
    """

    def headers(self, status: int, headers: Headers) -> None:
        """Handle the final response's head."""

    def data(self, chunk: bytes) -> None:
        """Handle a piece of the body, with the transfer coding removed."""
