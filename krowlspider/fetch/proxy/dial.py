"""Open connections through proxies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from krowlspider.fetch.connection import Connection
from krowlspider.fetch.errors import EXHAUSTED, LocalExhausted, ProxyFailed
from krowlspider.fetch.exchange import Dialled
from krowlspider.fetch.proxy.forward import ForwardingTransport, ForwardObserver

if TYPE_CHECKING:
    from krowlspider.fetch.dial import Dialer
    from krowlspider.fetch.exchange import Observer
    from krowlspider.fetch.http.request import Origin, Proxy
    from krowlspider.fetch.loop_clock import LoopClock


class ProxyDialer:
    """Opens connections through proxies, which the operator chose: they may be at any address.

    ``dialer`` checks the target. ``connect_timeout`` is in seconds of ``clock``, for all steps
    together.
    """

    def __init__(self, clock: LoopClock, dialer: Dialer, connect_timeout: float) -> None:
        self._clock = clock
        self._dialer = dialer
        self._connect_timeout = connect_timeout

    def watch(self, origin: Origin, observer: Observer | None) -> Observer | None:
        """Return the observer of an exchange with ``origin`` through its proxy."""
        assert origin.proxy is not None
        return ForwardObserver(origin.proxy, observer)

    async def dial(
        self, origin: Origin, proxy: Proxy, deadline: float, *, linked: bool
    ) -> Connection:
        """Return a new connection to ``origin``; its address is empty, as only the proxy knows it.

        :raises ProxyFailed: the proxy cannot be used
        :raises AddressForbidden: as of `Dialer.check_unresolved`
        """
        if origin.scheme != "http":
            raise ProxyFailed(f"proxy {proxy.name}: no {origin.scheme} URL goes through it")
        self._dialer.check_unresolved(origin, linked=linked)
        limit = min(self._clock.time() + self._connect_timeout, deadline)
        begun = self._clock.time()
        transport = await self._reach(proxy, limit)
        connection = Connection(self._clock, origin, "")
        connection.dialled = Dialled(0.0, self._clock.time() - begun)
        transport.set_protocol(connection)
        forwarding = ForwardingTransport(transport, origin, proxy)
        connection.connection_made(cast("asyncio.Transport", forwarding))
        return connection

    async def _reach(self, proxy: Proxy, limit: float) -> asyncio.Transport:
        """Return a TCP connection to the proxy.

        The system's resolver finds its name, which may be one of a private network.
        """
        try:
            async with self._clock.timeout_at(limit):
                transport, _ = await self._clock.loop.create_connection(
                    asyncio.Protocol, proxy.host, proxy.port
                )
        except TimeoutError as error:
            raise ProxyFailed(f"no connection to proxy {proxy.name} in time") from error
        except OSError as error:
            failure = LocalExhausted if error.errno in EXHAUSTED else ProxyFailed
            raise failure(f"proxy {proxy.name}: {error}") from error
        return transport
