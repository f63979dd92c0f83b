from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest

from krowlspider.fetch.errors import LocalExhausted
from krowlspider.fetch.guard import PORTS_MAX, VERDICTS_LAST, AddressGuard, AddressPorts, is_own
from tests.fetch.nameserver import no_sockets_left
from tests.support.tables import table

PUBLIC = [
    "1.1.1.1",
    "93.184.216.34",
    "172.32.0.1",
    "2606:4700::1111",
    "::ffff:1.1.1.1",
    "2002:101:101::1",
    "64:ff9b::1.1.1.1",
    "2001:0:808:808::fefe:fefe",
]
FORBIDDEN = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "224.0.0.1",
    "233.252.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "::ffff:0:127.0.0.1",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2001:0:7f00:1::fefe:fefe",
    "2001:0:808:808::80ff:fffe",
    "2001:db8::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]


@table("address", PUBLIC)
def test_public_addresses_pass(address: str) -> None:
    assert AddressGuard([]).permits(address)


@table("address", FORBIDDEN)
def test_addresses_outside_the_public_internet_are_forbidden(address: str) -> None:
    guard = AddressGuard([])
    for _ in range(2):
        assert not guard.permits(address)


@pytest.mark.parametrize("text", ["", "example.org", "1.2.3", "1.2.3.4.5", "[::1]", "0x7f000001"])
def test_text_that_is_no_address_is_forbidden(text: str) -> None:
    assert not AddressGuard(["0.0.0.0/0", "::/0"]).permits(text)


def test_allowed_networks_pass_and_no_others() -> None:
    guard = AddressGuard(["10.1.0.0/16", "fd00::/8"])
    assert guard.permits("10.1.255.255")
    assert guard.permits("fd12::1")
    assert guard.permits("::ffff:10.1.0.1")
    assert not guard.permits("10.2.0.0")


@pytest.mark.parametrize("cidr", ["10.0.0.0/33", "intranet", "10.0.0.1/8", ""])
def test_a_bad_network_is_named(cidr: str) -> None:
    with pytest.raises(ValueError, match=repr(cidr)):
        AddressGuard([cidr])


# IANA's registries of special-purpose addresses as of 2025, each block with "Globally Reachable".
# None: not applicable.
REGISTRY = {
    "0.0.0.0/8": False,
    "10.0.0.0/8": False,
    "100.64.0.0/10": False,
    "127.0.0.0/8": False,
    "169.254.0.0/16": False,
    "172.16.0.0/12": False,
    "192.0.0.0/24": False,
    "192.0.0.0/29": False,
    "192.0.0.8/32": False,
    "192.0.0.9/32": True,
    "192.0.0.10/32": True,
    "192.0.0.170/31": False,
    "192.0.2.0/24": False,
    "192.31.196.0/24": True,
    "192.52.193.0/24": True,
    "192.88.99.0/24": None,
    "192.168.0.0/16": False,
    "192.175.48.0/24": True,
    "198.18.0.0/15": False,
    "198.51.100.0/24": False,
    "203.0.113.0/24": False,
    "240.0.0.0/4": False,
    "255.255.255.255/32": False,
    "::1/128": False,
    "::/128": False,
    "64:ff9b:1::/48": False,
    "100::/64": False,
    "100:0:0:1::/64": False,
    "2001::/23": False,
    "2001:1::1/128": True,
    "2001:1::2/128": True,
    "2001:1::3/128": True,
    "2001:2::/48": False,
    "2001:3::/32": True,
    "2001:4:112::/48": True,
    "2001:10::/28": None,
    "2001:20::/28": True,
    "2001:30::/28": True,
    "2001:db8::/32": False,
    "2620:4f:8000::/48": True,
    "3fff::/20": False,
    "5f00::/16": False,
    "fc00::/7": False,
    "fe80::/10": False,
}
# Reachable, and nobody's web site: services of the network at its own routers and relays.
REFUSED_ALL_THE_SAME = {
    *("192.0.0.9/32", "192.0.0.10/32", "2001:1::1/128", "2001:1::2/128", "2001:1::3/128"),
    *("2001:3::/32", "2001:4:112::/48", "2001:20::/28", "2001:30::/28"),
}


def edges(block: str) -> set[IPv4Address | IPv6Address]:
    """Return the first and the last address of a block that are in no smaller block, or about which
    nothing else is known."""
    network = ip_network(block)
    inner = [
        ip_network(other)
        for other in REGISTRY
        if other != block and ip_network(other).version == network.version
    ]
    inner = [other for other in inner if other.subnet_of(network)]  # type: ignore[arg-type]
    found = {network[0], network[-1], network[network.num_addresses // 2]}
    return {address for address in found if not any(address in other for other in inner)}


@table("block", REGISTRY)
def test_special_blocks_are_judged_as_by_iana(block: str) -> None:
    guard = AddressGuard([], own=lambda _: False)
    expected = REGISTRY[block] is True and block not in REFUSED_ALL_THE_SAME
    # Teredo's 2001::/32 is judged by the addresses in it.
    judged = [str(address) for address in edges(block) if str(address) != "2001::"]
    assert {guard.permits(address) for address in judged} == {expected}


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1", "2606:4700::1111"],
)
def test_own_address_is_forbidden_in_any_spelling(address: str) -> None:
    own = {ip_address("8.8.8.8"), ip_address("2606:4700::1111")}
    assert not AddressGuard([], own=own.__contains__).permits(address)
    allow = ["8.8.8.8/32", "2606:4700::1111/128"]
    assert AddressGuard(allow, own=own.__contains__).permits(address)


def test_address_that_becomes_our_own_is_forbidden_soon() -> None:
    own: set[object] = set()
    now = 0.0
    guard = AddressGuard([], own=own.__contains__, clock=lambda: now)
    assert guard.permits("8.8.8.8")
    own.add(ip_address("8.8.8.8"))
    now = VERDICTS_LAST
    assert not guard.permits("8.8.8.8")


def test_addresses_of_interfaces_are_our_own() -> None:
    """Loopback, and the address from which packets are sent, if there is a route out."""
    assert is_own(IPv4Address("127.0.0.1"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        try:
            end.connect(("198.51.100.1", 9))
        except OSError:
            return
        assert is_own(IPv4Address(end.getsockname()[0]))
    assert not is_own(IPv4Address("198.51.100.1"))
    assert not is_own(IPv6Address("3fff::1"))


def test_lack_of_sockets_is_no_verdict() -> None:
    guard = AddressGuard([])
    with no_sockets_left(), pytest.raises(LocalExhausted):
        guard.permits("198.41.0.4")
    assert guard.permits("198.41.0.4")


def test_the_addresses_remembered_are_bounded() -> None:
    asked = AddressPorts(3)
    for port in range(PORTS_MAX):
        asked.add("1.1.1.1", port)
    assert not asked.has_room("1.1.1.1", 99)
    assert asked.has_room("1.1.1.1", 3)
    for number in range(3):
        asked.add(f"2.2.2.{number}", 99)
    assert asked.has_room("1.1.1.1", 99)
