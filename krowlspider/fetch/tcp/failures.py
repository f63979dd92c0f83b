"""Tell the class of a failure to connect."""

from __future__ import annotations

import errno
import ssl
from typing import TYPE_CHECKING

from krowlspider.fetch import errors
from krowlspider.fetch.tcp.routes import version_of

if TYPE_CHECKING:
    from krowlspider.fetch.tcp.routes import Routes

# Errors of connect(2) about this machine's network.
_NO_NETWORK = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL})


def connect_failure(
    error: OSError, address: str, where: str, *, secure: bool, routes: Routes
) -> errors.FetchError:
    """Return the failure for an OSError raised while connecting to an address, ``secure`` or not.

    ``where`` names the address for people.
    """
    # A router on the way may report the error (ICMP), for an address that nobody has. asyncio words
    # an error of connect(2) itself differently.
    by_router = str(error.strerror).startswith("Connect call failed")
    if error.errno in _NO_NETWORK and not by_router:
        return _no_network(error, version_of(address), where, routes)
    return _class_of(error, secure=secure)(f"{where}: {error}")


def _class_of(error: OSError, *, secure: bool) -> type[errors.FetchError]:
    if isinstance(error, TimeoutError):
        return errors.ConnectTimeout
    if isinstance(error, ConnectionRefusedError):
        return errors.ConnectRefused
    if isinstance(error, ssl.SSLError):
        return errors.TLSFailed
    if isinstance(error, ConnectionError):
        # It is no refusal here, so with TLS it is almost always a handshake cut short.
        return errors.TLSFailed if secure else errors.ConnectionReset
    return errors.LocalExhausted if error.errno in errors.EXHAUSTED else errors.ConnectFailed


def _no_network(error: OSError, version: int, where: str, routes: Routes) -> errors.FetchError:
    """Return the failure of this machine to send anything over IPv4 (4) or IPv6 (6).

    A machine that has a route for the other one is not down.
    """
    routes.look_again()
    other = 10 - version
    if routes.has(other) and not routes.has(version):
        return errors.ConnectFailed(f"{where}: this machine has no route for IPv{version}: {error}")
    # Machines lose single routes for IPv6 while all others hold.
    failure = errors.ConnectFailed if version == 6 and routes.has(4) else errors.NetworkDown
    return failure(f"{where}: {error}")
