"""Every way a fetch can fail. ``kind`` is the name under which a failure is counted."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from krowlspider.fetch.exchange import Exchange


# Errors of a process or machine that lacks descriptors, buffers or memory for a socket.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class FetchError(Exception):
    """A fetch failed. ``exchange`` is the partial exchange, if a head had been parsed."""

    kind: ClassVar[str] = "fetch"
    exchange: Exchange | None = None


class LocalExhausted(FetchError):
    """This machine lacks a descriptor, buffer or memory: nothing is known of the host."""

    kind = "local"


class NetworkDown(FetchError):
    """This machine has no network: no route at all, no interface, no address to send from."""

    kind = "network_down"


class NameFailed(FetchError):
    """A name has no address; each subclass names the cause.

    The class itself is raised when the resolver was closed meanwhile, or for another error of
    c-ares.
    """

    kind = "dns_error"


class NameNotFound(NameFailed):
    """The DNS answered that the name does not exist (NXDOMAIN). No other class means this."""

    kind = "dns_nxdomain"


class NameWithoutAddress(NameFailed):
    """The name exists, but has neither an IPv4 nor an IPv6 address (NODATA)."""

    kind = "dns_no_address"


class NameMalformed(NameFailed):
    """A label is empty or over 63 bytes, or the name over 255: RFC 1035, section 2.3.4."""

    kind = "dns_bad_name"


class NameServerFailed(NameFailed):
    """Name servers answered with SERVFAIL, REFUSED or NOTIMP, or with an invalid answer."""

    kind = "dns_servfail"


class NameTimeout(NameFailed):
    """No name server answered in time."""

    kind = "dns_timeout"


class NameServersDown(NameFailed):
    """No name server can be reached: their hosts refuse, or there is no route to them."""

    kind = "dns_down"


class AddressBusy(Exception):
    """A request was not sent: too many are in flight to ``address``. No fetch has failed."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} has as many requests as it may")
        self.address = address


class AddressForbidden(FetchError):
    """The address is neither of the public internet nor allowed by configuration."""

    kind = "address_forbidden"
    remedy: ClassVar[str] = "KROWL_ALLOW_ADDRESSES opens networks that are not public."


class PortForbidden(AddressForbidden):
    """The port belongs to another protocol, or links led to too many ports of the address."""

    kind = "port"
    remedy = "See KROWL_PORTS."


class ConnectRefused(FetchError):
    """Nothing listens at the port."""

    kind = "connect_refused"


class ConnectTimeout(FetchError):
    """No connection, TLS included, was made within the connect timeout."""

    kind = "connect_timeout"


class ConnectFailed(FetchError):
    """The network refused the connection: host unreachable, filtered, or an invalid address.

    Host unreachable is not NetworkDown: a router near the host reports it with the same error as
    our own machine without its gateway. So is no route for IPv6, which many machines never have.
    """

    kind = "connect_failed"


class TLSFailed(FetchError):
    """The TLS handshake failed, was cut short or reset, or TLS caused too much work at any time."""

    kind = "tls"


class FirstByteTimeout(FetchError):
    """The request was sent, and no byte came back in time."""

    kind = "first_byte_timeout"


class TotalTimeout(FetchError):
    """The whole fetch took longer than allowed."""

    kind = "total_timeout"


class TooSlow(TotalTimeout):
    """The answer had begun, but came at less than the minimum rate."""

    kind = "too_slow"


class ConnectionLost(FetchError):
    """The connection ended before the response did, or before the request was sent."""

    kind = "disconnect"


class ConnectionReset(ConnectionLost):
    """The connection was reset (RST), while connecting or within an exchange."""

    kind = "reset"


class ProtocolBroken(FetchError):
    """The data from the server is not HTTP/1, or cannot be framed without guessing."""

    kind = "protocol"


class TooLarge(FetchError):
    """The body is larger than the cap, as received or once decoded."""

    kind = "too_large"


class DecodeFailed(FetchError):
    """The body is not in its Content-Encoding, or decoding costs more than its bounds."""

    kind = "decode"
