"""What a machine knows of its routes, and for how long."""

from __future__ import annotations

import errno
import os

import pytest

from krowlspider.fetch.errors import ConnectFailed, FetchError, NetworkDown
from krowlspider.fetch.tcp import HELD, Routes, connect_failure, has_route
from tests.fetch.dns.resolving import Clock
from tests.fetch.machine import routed
from tests.fetch.nameserver import no_sockets_left


def test_routes_are_looked_at_when_they_are_needed_and_held_for_a_minute() -> None:
    looks: list[int] = []
    clock, found = Clock(), {4: True, 6: False}

    def look(version: int) -> bool:
        looks.append(version)
        return found[version]

    routes = Routes(look, clock)
    assert looks == []
    assert (routes.has(4), routes.has(6), routes.first()) == (True, False, 4)
    assert looks == [4, 6]
    found.update({4: False, 6: True})
    clock.now += HELD - 1
    assert routes.first() == 4
    clock.now += 1
    assert routes.first() == 6
    assert looks == [4, 6, 4, 6]


def test_what_cannot_be_found_out_stays_as_it_was() -> None:
    with no_sockets_left():
        assert has_route(4) is None
        assert has_route(6) is None
    routes = Routes(lambda _: None)
    assert (routes.has(4), routes.has(6)) == (True, False)


@pytest.mark.parametrize(
    ("address", "versions", "expected"),
    [
        ("192.0.2.1", (6,), ConnectFailed),
        ("192.0.2.1", (), NetworkDown),
        ("192.0.2.1", (4, 6), NetworkDown),
        ("2001:db8::1", (4,), ConnectFailed),
        ("2001:db8::1", (), NetworkDown),
        ("2001:db8::1", (6,), NetworkDown),
        ("2001:db8::1", (4, 6), ConnectFailed),
    ],
)
def test_lack_of_one_family_is_no_outage(
    address: str, versions: tuple[int, ...], expected: type[FetchError]
) -> None:
    """A machine without any route has lost its network."""
    error = OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
    routes = routed(*versions)
    failure = connect_failure(error, address, f"{address} port 80", secure=False, routes=routes)
    assert type(failure) is expected
    if len(versions) == 1 and expected is ConnectFailed:
        family = "IPv6" if ":" in address else "IPv4"
        assert f"{address} port 80: this machine has no route for {family}" in str(failure)


def test_a_failure_has_the_routes_looked_at_again() -> None:
    found = {4: True, 6: True}
    routes = Routes(found.__getitem__)
    assert routes.first() == 4
    found[4] = False
    error = OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
    connect_failure(error, "192.0.2.1", "there", secure=False, routes=routes)
    assert routes.first() == 6
