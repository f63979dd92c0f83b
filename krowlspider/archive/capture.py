"""What is handed to the archive, and where it went."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Capture:
    """One exchange as it was on the wire.

    ``url`` is the URL that was fetched, escaped, without whitespace. ``request_bytes`` and
    ``response_bytes`` are verbatim. ``payload`` is the entity: after transfer decoding, before
    content decoding. ``address`` is the peer's IP address as text. ``started`` is in seconds since
    the epoch. ``truncated`` says why the response is not whole: ``"length"``, ``"time"``,
    ``"disconnect"``, or ``""`` when it is. ``chain`` are the URLs whose redirects led here, the
    first one first.
    """

    url: str
    request_bytes: bytes
    response_bytes: bytes
    payload: bytes
    address: str
    started: float
    truncated: str
    chain: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes this capture holds in memory, the fixed cost of the object aside."""
        return len(self.request_bytes) + len(self.response_bytes) + len(self.payload)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a response record lies: its file's final name, first byte, and compressed length."""

    file: str
    offset: int
    length: int
