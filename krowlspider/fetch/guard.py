"""Decide which addresses and ports may be connected to, and resolve names that need no DNS.

A link must not lead the crawler into its own network, nor make it a port scanner.
"""

from __future__ import annotations

import socket
from collections import OrderedDict
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from time import monotonic
from typing import TYPE_CHECKING

from krowlspider.fetch.errors import EXHAUSTED, LocalExhausted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# IANA's registries of special-purpose (RFC 6890, section 2.2) and multicast addresses. Python's
# ``is_global`` is not used: its result for a block depends on the Python version.
SPECIAL_V4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network: RFC 791, section 3.2
        "10.0.0.0/8",  # private: RFC 1918
        "100.64.0.0/10",  # carrier-grade NAT: RFC 6598
        "127.0.0.0/8",  # loopback: RFC 1122, section 3.2.1.3
        "169.254.0.0/16",  # link-local, and cloud metadata: RFC 3927
        "172.16.0.0/12",  # private: RFC 1918
        "192.0.0.0/24",  # IETF protocols, with Port Control Protocol anycast: RFC 6890, RFC 7723
        "192.0.2.0/24",  # documentation: RFC 5737
        "192.88.99.0/24",  # former 6to4 relay anycast: RFC 7526
        "192.168.0.0/16",  # private: RFC 1918
        "198.18.0.0/15",  # benchmarking: RFC 2544
        "198.51.100.0/24",  # documentation: RFC 5737
        "203.0.113.0/24",  # documentation: RFC 5737
        "224.0.0.0/4",  # multicast: RFC 5771
        "240.0.0.0/4",  # reserved, and limited broadcast: RFC 1112, section 4; RFC 8190
    )
)
# The only IPv6 space assigned for global unicast (IANA IPv6 address space registry); other special
# blocks lie outside it. 6to4 and Teredo are judged by the IPv4 addresses in them.
GLOBAL_UNICAST = IPv6Network("2000::/3")
SPECIAL_V6 = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # IETF protocols, with benchmarking (RFC 5180), ORCHID (RFC 7343): RFC 2928
        "2001:db8::/32",  # documentation: RFC 3849
        "3fff::/20",  # documentation: RFC 9637
    )
)
NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052, section 2.1
IPV4_COMPATIBLE = IPv6Network("::/96")  # RFC 4291, section 2.5.5.1; contains :: and ::1 too
JUDGED = 65_536  # verdicts remembered, about 150 bytes each
# Seconds for which verdicts hold: an address may become one of this machine's.
VERDICTS_LAST = 300.0
_PROBE_PORT = 9  # any port does, as nothing is sent
# Ports of one address that links may lead to, by any names: a machine has few sites on ports other
# than 80 and 443.
PORTS_MAX = 8
# Addresses whose ports are remembered, the most recently requested ones; about 400 bytes each.
_ADDRESSES = 16_384

_Address = IPv4Address | IPv6Address


def is_own(address: _Address) -> bool:
    """Return whether an address is one of this machine's interfaces.

    A datagram socket connected to such an address has it as its own local address. Nothing is sent.

    :raises LocalExhausted: there is no socket left to find out
    """
    text = str(address)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as end:
            end.connect((text, _PROBE_PORT))
            return bool(end.getsockname()[0] == text)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise LocalExhausted(f"{text} cannot be judged: {error}") from error
        # There is no route to the address.
        return False


class AddressGuard:
    """Permits globally routable unicast addresses, and those in ``allow`` (CIDR networks).

    ``own`` returns whether an address is one of this machine's: links must not reach its services.
    ``clock`` returns monotonic seconds.

    :raises ValueError: an entry of ``allow`` is not a network; the message names the entry
    """

    def __init__(
        self,
        allow: Iterable[str],
        *,
        own: Callable[[_Address], bool] = is_own,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._allow = [_network(cidr) for cidr in allow]
        self._own = own
        self._clock = clock
        self._judged = lru_cache(maxsize=JUDGED)(self._permits)
        self._judge_anew = clock() + VERDICTS_LAST

    def permits(self, address: str) -> bool:
        """Return whether an address may be used; False for text that is not an address.

        :raises LocalExhausted: as for `is_own`
        """
        if (now := self._clock()) >= self._judge_anew:
            self._judge_anew = now + VERDICTS_LAST
            self._judged.cache_clear()
        return self._judged(address)

    def _permits(self, text: str) -> bool:
        try:
            address = ip_address(text)
        except ValueError:
            return False
        embedded = _embedded(address)
        if any(each in network for network in self._allow for each in (address, *embedded)):
            return True
        return all(_public(each) and not self._own(each) for each in embedded or (address,))


def _network(cidr: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(cidr)
    except ValueError as e:
        raise ValueError(f"{cidr!r} is not a network such as 10.0.0.0/8: {e}") from e


def _embedded(address: _Address) -> tuple[IPv4Address, ...]:
    """Return the IPv4 addresses that packets to this IPv6 address end up at."""
    if isinstance(address, IPv4Address):
        return ()
    if address.teredo is not None:
        return address.teredo
    if address in NAT64 or address in IPV4_COMPATIBLE:
        return (IPv4Address(int(address) & 0xFFFFFFFF),)
    embedded = address.ipv4_mapped or address.sixtofour
    return () if embedded is None else (embedded,)


def _public(address: _Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in block for block in SPECIAL_V4)
    return address in GLOBAL_UNICAST and not any(address in block for block in SPECIAL_V6)


class AddressPorts:
    """Remembers the ports of addresses that were requested because a link led there."""

    def __init__(self, addresses_max: int = _ADDRESSES) -> None:
        self._addresses_max = addresses_max
        self._asked: OrderedDict[str, set[int]] = OrderedDict()

    def has_room(self, address: str, port: int) -> bool:
        """Return whether the port was requested before, or another one may be."""
        asked = self._asked.get(address, ())
        return port in asked or len(asked) < PORTS_MAX

    def add(self, address: str, port: int) -> None:
        """Record that the port is about to be requested."""
        self._asked.setdefault(address, set()).add(port)
        self._asked.move_to_end(address)
        if len(self._asked) > self._addresses_max:
            self._asked.popitem(last=False)


# Names remembered that are addresses, or end like one; about 200 bytes each.
_PARSED = 65_536
# Characters of the longest text that is parsed: a zone may follow an IPv6 address.
_LONGEST = 128


def parse_hosts(text: str) -> dict[str, list[str]]:
    """Return the addresses of each name (lower case) in a hosts(5) file; skip invalid lines."""
    names: dict[str, list[str]] = {}
    for line in text.splitlines():
        fields = line.partition("#")[0].split()
        if fields and is_address(fields[0]):
            for name in fields[1:]:
                names.setdefault(name.lower(), []).append(fields[0])
    return names


def is_address(text: str) -> bool:
    """Return whether ``text`` is an IPv4 or IPv6 address, without brackets."""
    # The last character of most names shows that they are no address; parsing is much slower.
    return (text[-1:].isdigit() or ":" in text) and len(text) <= _LONGEST and _parses(text)


@lru_cache(maxsize=_PARSED)
def _parses(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


class LocalNames:
    """Finds the addresses of names that need no look-up.

    ``overrides`` maps an exact name or "*.suffix" to an address.

    :raises ValueError: an override is not an address; the message names the override
    """

    def __init__(self, overrides: Mapping[str, str], hosts: Mapping[str, list[str]]) -> None:
        self._overrides: dict[str, list[str]] = {}
        for name, address in overrides.items():
            bare = _without_brackets(address)
            if not is_address(bare):
                raise ValueError(f"{name!r} is mapped to {address!r}, which is not an address")
            self._overrides[name.lower().rstrip(".")] = [bare]
        self._hosts = hosts

    def find(self, name: str) -> list[str] | None:
        """Return the addresses of ``name`` (lower case, no root dot); None: ask the DNS.

        IPv4 addresses come first: a node without IPv6 must not try IPv6 first.
        """
        overridden = self._overridden(name) if self._overrides else None
        if overridden is not None:
            return overridden
        bare = _without_brackets(name)
        if is_address(bare):
            return [bare]
        if name == "localhost" or name.endswith(".localhost"):
            return ["127.0.0.1", "::1"]  # RFC 6761, section 6.3: no DNS query
        found = self._hosts.get(name)
        return None if found is None else sorted(found, key=lambda address: ":" in address)

    def _overridden(self, name: str) -> list[str] | None:
        found = self._overrides.get(name)
        _, dot, suffix = name.partition(".")
        while found is None and dot:
            found = self._overrides.get("*." + suffix)
            _, dot, suffix = suffix.partition(".")
        return found


def _without_brackets(text: str) -> str:
    return text.removeprefix("[").removesuffix("]")
