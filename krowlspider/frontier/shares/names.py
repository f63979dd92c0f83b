"""The kinds of shares, and their names.

- a domain: its name;
- an address: "@192.0.2.1", or the /64 of an IPv6 address;
- a block of addresses: "#192.0.2" for a /24, or an IPv6 /48;
- an origin, the domain whose pages led to the hosts: "^4fc3a0b1";
- the crowd, all hosts that are not known to answer soon: "?".
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network

CROWD = "?"
# Addresses of which the share names are remembered, about 300 bytes each.
_NAMED = 65_536
_NAT64 = IPv6Network("64:ff9b::/96")


@lru_cache(maxsize=_NAMED)
def places_of(address: str) -> tuple[str, str]:
    """Return the shares of an address and of its block. An IPv4 address that is mapped into IPv6
    (``::ffff:0:0/96``, or NAT64's ``64:ff9b::/96``) counts as IPv4."""
    if ":" in address:
        number = IPv6Address(address)
        if number.ipv4_mapped is None and number not in _NAT64:
            share = f"@{_start(number, 64)}/64"
            return share, address_block_of(share)
        address = ".".join(map(str, number.packed[-4:]))
    return f"@{address}", address_block_of(f"@{address}")


def address_block_of(share: str) -> str:
    """Return the share of an address's block, from the share of the address."""
    if share.endswith("/64"):
        return f"#{_start(IPv6Address(share[1:-3]), 48)}/48"
    return f"#{share[1:].rpartition('.')[0]}"


def _start(address: IPv6Address, bits: int) -> IPv6Address:
    """Return the first address of the network of an address."""
    return IPv6Address(int(address) >> 128 - bits << 128 - bits)
