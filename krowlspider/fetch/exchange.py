"""The record of one fetch, and the observer of a fetch in progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from krowlspider.fetch.spills import StoredResponse

Headers = list[tuple[bytes, bytes]]


class Peer(NamedTuple):
    """The other end of a connection; with TLS also version and cipher, and certificate in DER.

    ``address`` is empty behind a proxy, which does not tell it.
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


class Exchange(Struct, eq=False):
    """One request and its final response, verbatim for the archive and parsed for the crawler.

    ``response_bytes`` are without interim (1xx) responses and bytes after the end. The first
    ``head_length`` of them are status line, headers and the blank line. ``version`` is ``1.0`` or
    ``1.1``. ``headers`` have the server's own case. ``body`` has its content coding, and no
    transfer coding: the payload of WARC 1.1, section 6.3.2.

    ``truncated`` is empty, or why only a part was received, as a value of WARC-Truncated:
    ``length``, ``time`` or ``disconnect``.

    A large response is ``stored`` in a file; then ``response_bytes`` and ``body`` are empty.
    """

    url: str
    request_bytes: bytes
    response_bytes: bytes
    head_length: int
    status: int
    version: str
    headers: Headers
    body: bytes
    truncated: str
    peer: Peer
    times: Times
    stored: StoredResponse | None = None

    @property
    def response_size(self) -> int:
        """The bytes of the response, wherever they are."""
        return len(self.response_bytes) if self.stored is None else self.stored.size


class StopFetch(Exception):
    """Raised by an observer to end the fetch; what was received is kept."""


class Observer(Protocol):
    """Takes a response's head and the pieces of its body, without transfer coding.

    Called on the event loop between reads; must not block, and may raise StopFetch.
    """

    def headers(self, status: int, headers: Headers) -> None: ...
    def data(self, chunk: bytes) -> None: ...
