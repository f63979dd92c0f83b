"""Open connections through proxies."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import TYPE_CHECKING, cast

from krowlspider.fetch.connection import Connection
from krowlspider.fetch.errors import (
    EXHAUSTED,
    ConnectTimeout,
    Dialled,
    LocalExhausted,
    LoopClock,
    Observer,
    ProxyClosed,
    ProxyFailed,
)
from krowlspider.fetch.guard import is_address
from krowlspider.fetch.proxy.protocols import (
    ForwardingTransport,
    ForwardObserver,
    connect_by_http,
    connect_by_socks5,
)
from krowlspider.fetch.tcp import AddressOrder, Overtaken, Race, connect_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.fetch.dial import Dialer
    from krowlspider.fetch.http.head import Origin, Proxy

    _Stream = tuple[asyncio.StreamReader, asyncio.Transport]

# Most bytes of a proxy's answer to CONNECT.
_ANSWER_MAX = 16_384


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
        return ForwardObserver(origin.proxy, observer) if _is_forwarded(origin) else observer

    async def dial(
        self, origin: Origin, proxy: Proxy, deadline: float, *, linked: bool
    ) -> Connection:
        """Return a new connection to ``origin``; its address is empty, as only the proxy knows it.

        ``deadline`` is a time of the clock; ``linked`` is as in `Dialer.dial`.

        :raises ProxyFailed: the proxy cannot be used
        :raises FetchError: as of `Dialer.check_unresolved`, or the proxy does not reach the target
        """
        self._dialer.check_unresolved(origin, linked=linked)
        begun = self._clock.time()
        limit = min(begun + self._connect_timeout, deadline)
        reader, transport = await self._reach(proxy, limit)
        try:
            async with self._clock.timeout_at(limit):
                connection = Connection(self._clock, origin, "")
                if not _is_forwarded(origin):
                    await self._tunnel(reader, transport, origin, proxy)
                connection.dialled = Dialled(0.0, self._clock.time() - begun)
                await self._start(connection, transport, proxy)
        except TimeoutError as error:
            transport.abort()
            raise ConnectTimeout(
                f"no connection to {origin.host} port {origin.port} through proxy {proxy.name} in"
                " time"
            ) from error
        except BaseException:
            transport.abort()
            raise
        return connection

    async def _reach(self, proxy: Proxy, limit: float) -> _Stream:
        """Return a TCP connection to the proxy, and what reads from it.

        :raises ProxyFailed: it cannot be reached before ``limit``, a time of the clock
        :raises LocalExhausted: this machine has no file or port left
        """
        race = Race(
            self._clock,
            AddressOrder(await self._addresses(proxy, limit)),
            partial(self._attempt, proxy),
            limit=limit,
            next_after=(ProxyFailed,),
            discard=_abort,
        )
        try:
            return await race.run()
        except TimeoutError as error:
            raise _not_in_time(proxy) from error

    async def _addresses(self, proxy: Proxy, limit: float) -> list[str]:
        """Return the addresses of a proxy.

        The system's resolver looks up its name, which may be one of a private network.
        """
        if is_address(proxy.host):
            return [proxy.host]
        try:
            async with self._clock.timeout_at(limit):
                found = await self._clock.loop.getaddrinfo(
                    proxy.host, proxy.port, type=socket.SOCK_STREAM
                )
        except TimeoutError as error:
            raise _not_in_time(proxy) from error
        except OSError as error:
            raise _not_reached(proxy, error) from error
        return [str(end[0]) for *_, end in found]

    async def _attempt(self, proxy: Proxy, address: str, reached: Callable[[], None]) -> _Stream:
        loop = self._clock.loop
        reader = asyncio.StreamReader(_ANSWER_MAX, loop)
        try:
            transport, _ = await loop.create_connection(
                lambda: asyncio.StreamReaderProtocol(reader, loop=loop), address, proxy.port
            )
        except OSError as error:
            raise _not_reached(proxy, error) from error
        try:
            reached()
        except Overtaken:
            transport.abort()
            raise
        return reader, transport

    async def _tunnel(
        self,
        reader: asyncio.StreamReader,
        transport: asyncio.Transport,
        origin: Origin,
        proxy: Proxy,
    ) -> None:
        """Have the proxy connect to ``origin``, so that all further bytes are the origin's.

        :raises FetchError: it does not
        """
        try:
            connect = connect_by_http if proxy.scheme == "http" else connect_by_socks5
            await connect(reader, transport, origin, proxy)
        except (EOFError, OSError) as error:
            raise ProxyClosed(f"proxy {proxy.name} opens no connection: {error}") from error
        except asyncio.LimitOverrunError as error:
            raise ProxyFailed(f"proxy {proxy.name} opens no connection: {error}") from error

    async def _start(
        self, connection: Connection, transport: asyncio.Transport, proxy: Proxy
    ) -> None:
        """Make ``connection`` the user of the transport, over TLS for https.

        :raises FetchError: the TLS handshake failed
        """
        origin, dialled = connection.origin, connection.dialled
        if origin.scheme == "http":
            transport.set_protocol(connection)
            if _is_forwarded(origin):
                forwarding = ForwardingTransport(transport, origin, proxy)
                transport = cast("asyncio.Transport", forwarding)
            connection.connection_made(transport)
            return
        channel = self._dialer.secure(connection)
        transport.set_protocol(channel)
        try:
            channel.connection_made(transport)
            await channel.secured
        except BaseException as error:
            channel.abort()
            # As in `Dialer`: no cycle that keeps the memory of OpenSSL.
            del channel
            if isinstance(error, OSError):
                where, routes = f"{origin.host} through proxy {proxy.name}", self._dialer.routes
                raise connect_failure(error, "", where, secure=True, routes=routes) from error
            raise
        assert dialled is not None
        connection.dialled = dialled._replace(tls=self._clock.time() - channel.connected)


def _abort(stream: _Stream) -> None:
    _, transport = stream
    transport.abort()


def _not_in_time(proxy: Proxy) -> ProxyFailed:
    return ProxyFailed(f"no connection to proxy {proxy.name} in time")


def _not_reached(proxy: Proxy, error: OSError) -> LocalExhausted | ProxyFailed:
    failure = LocalExhausted if error.errno in EXHAUSTED else ProxyFailed
    return failure(f"proxy {proxy.name}: {error}")


def _is_forwarded(origin: Origin) -> bool:
    """Return whether the proxy passes on single requests to an origin, and opens no tunnel."""
    assert origin.proxy is not None
    return origin.scheme == origin.proxy.scheme == "http"
