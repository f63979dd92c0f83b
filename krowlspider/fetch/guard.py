"""Which addresses may be connected to. A link must not lead the crawler into its own network."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from krowlspider.fetch.errors import AddressForbidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# The only IPv6 space given out for global unicast (IANA IPv6 address space registry); what
# ``is_global`` says of the rest (site-local fec0::/10, say) depends on the Python version.
GLOBAL_UNICAST = IPv6Network("2000::/3")
NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052, section 2.1
IPV4_COMPATIBLE = IPv6Network("::/96")  # RFC 4291, section 2.5.5.1; holds :: and ::1 too
JUDGED = 65_536  # verdicts remembered, about 150 bytes each


class AddressGuard:
    """Lets through globally routable unicast addresses, and those of ``allow`` (CIDR networks).

    Raises ValueError, naming it, for an entry of ``allow`` that is not a network.
    """

    def __init__(self, allow: Iterable[str]) -> None:
        networks = [_network(cidr) for cidr in allow]

        @lru_cache(maxsize=JUDGED)
        def permitted(address: str) -> bool:
            return _permitted(address, networks)

        self.permits: Callable[[str], bool] = permitted
        """Whether an address may be used; what is not an address may not."""

    def check(self, address: str) -> None:
        """Raise AddressForbidden unless ``address`` (text of an IPv4 or IPv6 address) may be used."""
        if not self.permits(address):
            raise AddressForbidden(f"{address} is not a public address")


def _network(cidr: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(cidr)
    except ValueError as e:
        raise ValueError(f"{cidr!r} is not a network such as 10.0.0.0/8: {e}") from e


def _permitted(text: str, allow: list[IPv4Network | IPv6Network]) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    embedded = _embedded(address)
    if any(candidate in network for network in allow for candidate in (address, *embedded)):
        return True
    if embedded:
        return all(_public(candidate) for candidate in embedded)
    return _public(address)


def _embedded(address: IPv4Address | IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that packets to this IPv6 address end up at."""
    if isinstance(address, IPv4Address):
        return ()
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if address in NAT64 or address in IPV4_COMPATIBLE:
        return (IPv4Address(int(address) & 0xFFFFFFFF),)
    return ()


def _public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address) and address not in GLOBAL_UNICAST:
        return False
    return address.is_global and not address.is_multicast
