"""Every way a fetch can fail. ``kind`` is the word under which the failure is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from krowlspider.fetch.exchange import Exchange


class FetchError(Exception):
    """A fetch failed. ``exchange`` is what had been received, once a head had been parsed."""

    kind: ClassVar[str] = "fetch"

    def __init__(self, message: str = "", exchange: Exchange | None = None) -> None:
        super().__init__(message)
        self.exchange = exchange


class NameNotFound(FetchError):
    """The DNS says that the name does not exist (NXDOMAIN)."""

    kind = "dns_nxdomain"


class NameFailed(FetchError):
    """The DNS gave no usable answer: SERVFAIL, timeout, a malformed name, no address."""

    kind = "dns_error"


class AddressForbidden(FetchError):
    """The address is not one of the public internet, nor allowed by configuration."""

    kind = "address_forbidden"


class ConnectRefused(FetchError):
    """Nothing listens at the port."""

    kind = "connect_refused"


class ConnectTimeout(FetchError):
    """No connection, TLS included, within the connect timeout."""

    kind = "connect_timeout"


class ConnectFailed(FetchError):
    """The network refused the connection: no route, host unreachable, out of sockets."""

    kind = "connect_failed"


class TLSFailed(FetchError):
    """The TLS handshake failed."""

    kind = "tls"


class FirstByteTimeout(FetchError):
    """The request was sent, and not one byte came back in time."""

    kind = "first_byte_timeout"


class TotalTimeout(FetchError):
    """The whole fetch took longer than allowed."""

    kind = "total_timeout"


class ConnectionLost(FetchError):
    """The server closed the connection before the end of its response."""

    kind = "disconnect"


class ProtocolBroken(FetchError):
    """What the server sent is not HTTP/1, or cannot be framed without guessing."""

    kind = "protocol"


class TooLarge(FetchError):
    """The body is larger than the cap, as received or once decoded."""

    kind = "too_large"


class DecodeFailed(FetchError):
    """The body is not what its Content-Encoding says."""

    kind = "decode"
