"""Every way a fetch can fail. ``kind`` is the word under which the failure is counted."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from krowlspider.fetch.exchange import Exchange


# This process or machine has no more of what a socket needs: descriptors, buffers, memory.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class FetchError(Exception):
    """A fetch failed. ``exchange`` is what had been received, once a head had been parsed."""

    kind: ClassVar[str] = "fetch"

    def __init__(self, message: str = "", exchange: Exchange | None = None) -> None:
        super().__init__(message)
        self.exchange = exchange


class LocalExhausted(FetchError):
    """This side has no descriptor, buffer or memory left for a socket: nothing is said of the host."""

    kind = "local"


class NetworkDown(FetchError):
    """This side has no network: no route at all, no interface, no address to send from."""

    kind = "network_down"


class NameFailed(FetchError):
    """No address for a name; each class below says why. Itself: the resolver was closed meanwhile."""

    kind = "dns_error"


class NameNotFound(NameFailed):
    """The DNS says that the name does not exist (NXDOMAIN). No other class says so."""

    kind = "dns_nxdomain"


class NameWithoutAddress(NameFailed):
    """The name exists, and has neither IPv4 nor IPv6 address (NODATA)."""

    kind = "dns_no_address"


class NameMalformed(NameFailed):
    """No name of the DNS: an empty label, one over 63 bytes, 255 in all (RFC 1035, section 2.3.4)."""

    kind = "dns_bad_name"


class NameServerFailed(NameFailed):
    """Name servers answered that they cannot tell: SERVFAIL, REFUSED, NOTIMP, or an answer without sense."""

    kind = "dns_servfail"


class NameTimeout(NameFailed):
    """No name server answered in time."""

    kind = "dns_timeout"


class NameServersDown(NameFailed):
    """No name server can be reached: their hosts refuse, or there is no way to them."""

    kind = "dns_down"


class AddressBusy(Exception):
    """A request was not sent, because too many are on their way to the host's ``address``. Not a failed fetch."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} has as many requests as it may")
        self.address = address


class AddressForbidden(FetchError):
    """The address is not one of the public internet, nor allowed by configuration."""

    kind = "address_forbidden"
    remedy: ClassVar[str] = "KROWL_ALLOW_ADDRESSES opens networks that are not public."


class PortForbidden(AddressForbidden):
    """The port is of another protocol, or links have led to too many ports of the address."""

    kind = "port"
    remedy = "See KROWL_PORTS."


class ConnectRefused(FetchError):
    """Nothing listens at the port."""

    kind = "connect_refused"


class ConnectTimeout(FetchError):
    """No connection, TLS included, within the connect timeout."""

    kind = "connect_timeout"


class ConnectFailed(FetchError):
    """The network refused the connection: host unreachable, filtered, an address without a meaning.

    Host unreachable is here and not in NetworkDown: a router near the host says it in the same word as our
    own machine when its gateway is gone. So is no route for IPv6, which many machines never have.
    """

    kind = "connect_failed"


class TLSFailed(FetchError):
    """The TLS handshake failed, or was cut short, by a reset too: asyncio tells both alike. Or TLS
    caused too much work, at any time."""

    kind = "tls"


class FirstByteTimeout(FetchError):
    """The request was sent, and not one byte came back in time."""

    kind = "first_byte_timeout"


class TotalTimeout(FetchError):
    """The whole fetch took longer than allowed."""

    kind = "total_timeout"


class TooSlow(TotalTimeout):
    """The answer had begun, and came at less than the minimum rate."""

    kind = "too_slow"


class ConnectionLost(FetchError):
    """The server closed the connection before the end of its response."""

    kind = "disconnect"


class ConnectionReset(ConnectionLost):
    """The connection was broken off (RST), while connecting or within an exchange."""

    kind = "reset"


class ProtocolBroken(FetchError):
    """What the server sent is not HTTP/1, or cannot be framed without guessing."""

    kind = "protocol"


class TooLarge(FetchError):
    """The body is larger than the cap, as received or once decoded."""

    kind = "too_large"


class DecodeFailed(FetchError):
    """The body is not what its Content-Encoding says."""

    kind = "decode"
