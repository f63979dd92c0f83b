from __future__ import annotations

import pytest

from krowlspider.fetch.errors import AddressForbidden
from krowlspider.fetch.guard import AddressGuard

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


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_pass(address: str) -> None:
    AddressGuard([]).check(address)


@pytest.mark.parametrize("address", FORBIDDEN)
def test_all_that_is_not_the_public_internet_is_forbidden(address: str) -> None:
    guard = AddressGuard([])
    for _ in range(2):
        with pytest.raises(AddressForbidden, match=r"not a public address"):
            guard.check(address)


@pytest.mark.parametrize("text", ["", "example.org", "1.2.3", "1.2.3.4.5", "[::1]", "0x7f000001"])
def test_what_is_not_an_address_is_forbidden(text: str) -> None:
    with pytest.raises(AddressForbidden):
        AddressGuard(["0.0.0.0/0", "::/0"]).check(text)


def test_allowed_networks_pass_and_no_others() -> None:
    guard = AddressGuard(["10.1.0.0/16", "fd00::/8"])
    guard.check("10.1.255.255")
    guard.check("fd12::1")
    guard.check("::ffff:10.1.0.1")
    with pytest.raises(AddressForbidden):
        guard.check("10.2.0.0")


@pytest.mark.parametrize("cidr", ["10.0.0.0/33", "intranet", "10.0.0.1/8", ""])
def test_a_bad_network_is_named(cidr: str) -> None:
    with pytest.raises(ValueError, match=repr(cidr)):
        AddressGuard([cidr])


def test_guards_do_not_share_their_verdicts() -> None:
    AddressGuard(["127.0.0.0/8"]).check("127.0.0.1")
    with pytest.raises(AddressForbidden):
        AddressGuard([]).check("127.0.0.1")
