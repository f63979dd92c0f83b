"""Which ports URLs may have."""

from __future__ import annotations

import pytest

from krowlspider.urls.host import BAD_PORTS, Ports, has_bad_port, name_of, port_of


@pytest.mark.parametrize(
    ("host", "name", "port"),
    [
        ("a.test", "a.test", None),
        ("a.test:8080", "a.test", 8080),
        ("1.2.3.4:0", "1.2.3.4", 0),
        ("[::1]", "[::1]", None),
        ("[2001:db8::80]:443", "[2001:db8::80]", 443),
    ],
)
def test_a_host_is_a_name_and_maybe_a_port(host: str, name: str, port: int | None) -> None:
    assert (name_of(host), port_of(host)) == (name, port)


def test_the_ports_that_browsers_refuse_are_bad() -> None:
    """The whole table of the Fetch standard."""
    assert len(BAD_PORTS) == 83
    assert all(has_bad_port(f"a.test:{port}") for port in BAD_PORTS)
    for host in ("a.test", "a.test:80", "a.test:443", "a.test:8080", "a.test:6379", "[::25]"):
        assert not has_bad_port(host)


def test_single_ports_are_listed_and_ranges_span() -> None:
    ports = Ports(["80", " 8080 ", "1024-2000", "1-1"])
    assert [port for port in range(70_000) if ports.lists(port)] == [80, 8080]
    assert [port for port in range(70_000) if ports.spans(port)] == [1, *range(1024, 2001)]


@pytest.mark.parametrize("text", ["", "a", "-1", "1-", "65536", "2-1", "1-2-3", "22", "٣", "1" * 9])
def test_what_is_no_port_or_range_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=repr(text)):
        Ports(["80", text])
