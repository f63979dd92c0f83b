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

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind = kind


class LocalExhausted(FetchError, kind="local"):
    """This machine lacks a descriptor, buffer or memory: nothing is known of the host."""


class NetworkDown(FetchError, kind="network_down"):
    """This machine has no network: no route at all, no interface, no address to send from."""


class NameFailed(FetchError, kind="dns_error"):
    """A name has no address; each subclass names the cause.

    The class itself is raised when the resolver was closed meanwhile, or for another error of
    c-ares.
    """


class NameNotFound(NameFailed, kind="dns_nxdomain"):
    """The DNS answered that the name does not exist (NXDOMAIN). No other class means this."""


class NameWithoutAddress(NameFailed, kind="dns_no_address"):
    """The name exists, but has neither an IPv4 nor an IPv6 address (NODATA)."""


class NameMalformed(NameFailed, kind="dns_bad_name"):
    """A label is empty or over 63 bytes, or the name over 255: RFC 1035, section 2.3.4."""


class NameServerFailed(NameFailed, kind="dns_servfail"):
    """Name servers answered with SERVFAIL, REFUSED or NOTIMP, or with an invalid answer.

    It is raised too if they cannot be reached for this name, but answer another question: they
    refuse TCP after a truncated answer, for instance.
    """


class NameTimeout(NameFailed, kind="dns_timeout"):
    """No name server answered in time."""


class NameServersDown(NameFailed, kind="dns_down"):
    """No name server can be reached: their hosts refuse, or there is no route to them.

    A question about another name has confirmed it.
    """


# The kinds of failure by which there is no such host.
UNKNOWN_NAMES = (NameNotFound.kind, NameWithoutAddress.kind, NameMalformed.kind)


class AddressBusy(Exception):
    """A request was not sent: too many are in flight to ``address``. No fetch has failed."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} has as many requests as it may")
        self.address = address


class AddressForbidden(FetchError, kind="address_forbidden"):
    """The address is neither of the public internet nor allowed by configuration."""

    remedy: ClassVar[str] = "KROWL_ALLOW_ADDRESSES opens networks that are not public."


class PortForbidden(AddressForbidden, kind="port"):
    """The port belongs to another protocol, or links led to too many ports of the address."""

    remedy = "See KROWL_PORTS."


class ConnectRefused(FetchError, kind="connect_refused"):
    """Nothing listens at the port."""


class ConnectTimeout(FetchError, kind="connect_timeout"):
    """No connection, TLS included, was made within the connect timeout."""


class ConnectFailed(FetchError, kind="connect_failed"):
    """The network refused the connection: host unreachable, filtered, or an invalid address.

    Host unreachable is not NetworkDown: a router near the host reports it with the same error as
    our own machine without its gateway. So is no route for IPv6, which many machines never have.
    """


class TLSFailed(FetchError, kind="tls"):
    """The TLS handshake failed, was cut short or reset, or TLS caused too much work at any time."""


class ProxyFailed(FetchError, kind="proxy"):
    """A proxy could not be reached, or broke its protocol: nothing is known of the host."""

    is_final: ClassVar[bool] = False
    """Whether the next try would fail in the same way."""


class ProxyInvalid(ProxyFailed, kind="proxy_url"):
    """The URL of a proxy cannot be used."""

    is_final = True


class ProxyDenied(ProxyFailed, kind="proxy_auth"):
    """A proxy refused the credentials, or demands some: status 407 of HTTP."""

    is_final = True


class ProxyClosed(ProxyFailed, kind="proxy_closed"):
    """A proxy was reached, and ended the connection in place of an answer. It may do so because it
    does not reach the host."""


class ProxyRefused(ProxyFailed, kind="proxy_refused"):
    """A proxy does not connect to the target, by its own rules."""


class TargetUnreached(FetchError, kind="proxy_target"):
    """A proxy tried to connect to the target, and could not."""


class FirstByteTimeout(FetchError, kind="first_byte_timeout"):
    """The request was sent, and no byte came back in time."""


class TotalTimeout(FetchError, kind="total_timeout"):
    """The whole fetch took longer than allowed."""


class TooSlow(TotalTimeout, kind="too_slow"):
    """The answer had begun, but came at less than the minimum rate."""


class ConnectionLost(FetchError, kind="disconnect"):
    """The connection ended before the response did, or before the request was sent."""


class NoCloseNotify(ConnectionLost, kind="no_close_notify"):
    """An answer over TLS that names no length ended with TCP, without close_notify.

    Many servers end so. The answer may be whole or cut (RFC 9112, section 9.8).
    """


class ConnectionReset(ConnectionLost, kind="reset"):
    """The connection was reset (RST), while connecting or within an exchange."""


class ProtocolBroken(FetchError, kind="protocol"):
    """The data from the server is not HTTP/1, or cannot be framed without guessing."""


class TooLarge(FetchError, kind="too_large"):
    """The body is larger than the cap, as received or once decoded."""


class DecodeFailed(FetchError, kind="decode"):
    """The body is not in its Content-Encoding, or decoding costs more than its bounds."""
