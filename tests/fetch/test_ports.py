"""Which ports the crawler connects to."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from krowlspider.fetch import ports
from krowlspider.fetch.errors import AddressForbidden, PortForbidden
from krowlspider.fetch.ports import PORTS_MAX, AddressPorts
from tests.fetch.web import answering, client, serve

if TYPE_CHECKING:
    from krowlspider.fetch.client import Client
    from tests.fetch.web import Run

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


async def ask(made: Client, url: str, *, linked: bool) -> int:
    exchange = await made.fetch(url, "GET", (), b"", timeout=5, max_size=100, linked=linked)
    return exchange.status


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_port_of_another_protocol_is_not_dialled(run: Run, scheme: str) -> None:
    async def main() -> None:
        async with client() as made:
            for port in (0, 22, 6667):
                with pytest.raises(PortForbidden, match=f"port {port} is of another protocol"):
                    await ask(made, f"{scheme}://a.test:{port}/", linked=False)

    run(main())


def test_links_lead_to_eight_ports_of_an_address(run: Run) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack, client() as made:
            webs = [
                await stack.enter_async_context(serve(answering(OK))) for _ in range(PORTS_MAX + 2)
            ]
            for number, web in enumerate(webs[:PORTS_MAX]):
                assert await ask(made, f"http://n{number}.test:{web.port}/", linked=True) == 200
            for number, web in enumerate(webs[PORTS_MAX:]):
                with pytest.raises(PortForbidden, match=r"8 ports of 127\.0\.0\.1"):
                    await ask(made, f"http://m{number}.test:{web.port}/", linked=True)
                assert web.connections == 0
                # As a person's seeds are.
                assert await ask(made, f"http://m{number}.test:{web.port}/", linked=False) == 200
            # One that was asked before.
            assert await ask(made, f"http://other.test:{webs[0].port}/", linked=True) == 200

    run(main())


def test_the_addresses_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_ADDRESSES", 3)
    asked = AddressPorts()
    for port in range(PORTS_MAX):
        asked.add("1.1.1.1", port)
    assert not asked.has_room("1.1.1.1", 99)
    assert asked.has_room("1.1.1.1", 3)
    for number in range(3):
        asked.add(f"2.2.2.{number}", 99)
    assert asked.has_room("1.1.1.1", 99)


def test_a_forbidden_port_fails_for_good_as_an_address_does() -> None:
    assert issubclass(PortForbidden, AddressForbidden)
    assert PortForbidden.kind == "port"
