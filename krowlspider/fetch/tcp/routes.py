"""Which routes this machine has, in which order addresses are tried, and the class of a failure."""

from __future__ import annotations

import errno
import socket
import ssl
from ipaddress import ip_address
from time import monotonic
from typing import TYPE_CHECKING

from krowlspider.fetch import errors
from krowlspider.fetch.errors import EXHAUSTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Seconds for which what was found holds.
HELD = 60.0
# Addresses of a.root-servers.net. Any address of the public internet does, as nothing is sent.
_PUBLIC = {4: "198.41.0.4", 6: "2001:503:ba3e::2:30"}
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_PORT = 53


def version_of(address: str) -> int:
    """Return the version of IP of an address: 4 or 6."""
    return 6 if ":" in address else 4


def has_route(version: int) -> bool | None:
    """Return whether packets can be sent to the internet over a version of IP; None if there is no
    socket left to find out.

    A datagram socket can be connected only where there is a route and an address to send from.
    """
    try:
        with socket.socket(_FAMILIES[version], socket.SOCK_DGRAM) as end:
            end.connect((_PUBLIC[version], _PORT))
            source = ip_address(end.getsockname()[0].partition("%")[0])
    except OSError as error:
        return None if error.errno in EXHAUSTED else False
    # From these addresses nothing leaves the machine, or the link.
    return not (source.is_loopback or source.is_link_local)


class Routes:
    """Holds for a minute over which versions of IP this machine reaches the internet.

    ``look`` is as `has_route`; ``clock`` returns monotonic seconds.
    """

    def __init__(
        self,
        look: Callable[[int], bool | None] = has_route,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._look = look
        self._clock = clock
        self._found = {4: True, 6: False}
        self._look_at = clock()

    def has(self, version: int) -> bool:
        """Return whether there is a route for IPv4 (4) or IPv6 (6)."""
        if self._clock() >= self._look_at:
            self.look_again()
        return self._found[version]

    def first(self) -> int:
        """Return the version to try first: 6 if there is a route for that alone, otherwise 4."""
        return 4 if self.has(4) or not self._found[6] else 6

    def look_again(self) -> None:
        """Find the routes out anew: a failure shows that they may have changed."""
        self._look_at = self._clock() + HELD
        for version in self._found:
            if (found := self._look(version)) is not None:
                self._found[version] = found


# Addresses of a family that are tried: a dead host with many must not get an attempt at each.
ADDRESSES_TRIED = 3


class Order:
    """The addresses to try. Families alternate where there are both (RFC 8305, section 4)."""

    __slots__ = ("_left", "taken")

    def __init__(self, addresses: Iterable[str]) -> None:
        self._left = list(addresses)
        self.taken: list[str] = []

    def add(self, addresses: Iterable[str]) -> None:
        known = {*self._left, *self.taken}
        self._left += [address for address in addresses if address not in known]

    @property
    def has_more(self) -> bool:
        return bool(self._left)

    def take(self) -> str | None:
        """Return the next address to try; None if none is left for now."""
        if not self._left:
            return None
        if not self.taken:
            self.taken.append(self._left.pop(0))
            return self.taken[0]
        taken = [version_of(address) for address in self.taken]
        found = [each for each in self._left if taken.count(version_of(each)) < ADDRESSES_TRIED]
        if not found:
            return None
        address = next((each for each in found if version_of(each) != taken[-1]), found[0])
        self._left.remove(address)
        self.taken.append(address)
        return address


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
