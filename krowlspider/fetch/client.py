"""The HTTP/1.1 client: each call makes one exchange."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING

from krowlspider.fetch.connection import (
    Connection,
    ConnectionPool,
    ExchangeOrder,
    ExchangeReader,
    OneByOne,
)
from krowlspider.fetch.dial import Admit, Dialer, anywhere
from krowlspider.fetch.errors import (
    AddressBusy,
    ConnectionLost,
    Exchange,
    LoopClock,
    Observer,
    Peer,
)
from krowlspider.fetch.http.head import (
    Origin,
    Proxy,
    Target,
    build_request,
    split_target,
    with_lines,
)
from krowlspider.fetch.http.reader import ResponseReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from krowlspider.fetch.guard import AddressGuard
    from krowlspider.fetch.memory import FetchMemory, Spills
    from krowlspider.fetch.proxy.dial import ProxyDialer
    from krowlspider.fetch.resolver import Resolver

# Seconds from the last byte of the request to the first of the answer: half of DOWNLOAD_TIMEOUT, so
# that a silent server frees its place sooner than a slow one.
FIRST_BYTE_TIMEOUT = 30.0
# Bytes a second that an answer must have on average over any 10 s, once it has begun. A modem of
# 9600 baud has 1000. Servers that send a head immediately and then think for over 10 s are lost.
BODY_RATE_MIN = 500
# Seconds that an unused connection is kept: longer than most delays, shorter than the limit of most
# servers.
KEEPALIVE = 15.0


class Client:
    """Fetches over kept-alive HTTP/1.1 connections. Times are in seconds of ``clock``.

    ``connect_timeout`` holds for all addresses together, TLS included. ``first_byte_timeout``
    counts from the request sent. An answer that has begun must come at ``rate_min`` bytes a second
    or more (0: at any rate). At most ``max_idle`` idle connections are kept, each for
    ``idle_timeout`` seconds of the loop. The caller closes ``clock`` and ``resolver``.
    """

    def __init__(
        self,
        *,
        clock: LoopClock,
        resolver: Resolver,
        guard: AddressGuard,
        connect_timeout: float,
        max_idle: int,
        first_byte_timeout: float = FIRST_BYTE_TIMEOUT,
        idle_timeout: float = KEEPALIVE,
        rate_min: int = BODY_RATE_MIN,
    ) -> None:
        self._clock = clock
        self._dialer = Dialer(
            clock=clock, resolver=resolver, guard=guard, connect_timeout=connect_timeout
        )
        self._connect_timeout = connect_timeout
        self._pool = ConnectionPool(clock, max_idle=max_idle, idle_timeout=idle_timeout)
        self._first_byte_timeout = first_byte_timeout
        self._rate_min = rate_min
        self._large = OneByOne(clock.loop)
        self._busy: set[Connection] = set()
        # The number of calls of `hang_up`.
        self._hung_up = 0

    async def fetch(
        self,
        url: str,
        method: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        timeout: float,
        max_size: int,
        observer: Observer | None = None,
        admit: Admit = anywhere,
        linked: bool = False,
        memory: FetchMemory,
        spills: Spills | None = None,
        proxy: Proxy | None = None,
        sign: Callable[[Target, str], bytes] | None = None,
    ) -> Exchange:
        """Make one exchange within ``timeout`` seconds and return it.

        ``url`` is WHATWG-normalised. Redirects, cookies and content codings are left to the caller.

        ``max_size`` caps the body in bytes as received. ``admit`` and ``linked`` are as in
        `Dialer.dial`. The bytes received are counted in ``memory``, which the caller releases. With
        ``spills`` a large response is stored in a file.

        Through a ``proxy``, the exchange holds the request as the origin sees it, without the
        credentials of the proxy. The origin's address is unknown, so ``admit`` is not called.

        ``sign`` is called when the connection is there, with the target and the method; the header
        lines that it returns are sent too.

        No request is sent twice: when a kept-alive connection dies, the server may have read it,
        and the next request must wait for the host's delay.

        :raises FetchError: the fetch failed; it holds the partial exchange once there was a head
        :raises AddressBusy: the request may go to none of the host's addresses now
        :raises ValueError: the request cannot be written
        :raises Exception: whatever ``observer`` raises, StopFetch aside
        """
        begun = self._clock.time()
        target = split_target(url)
        order = ExchangeOrder(
            url,
            build_request(target, method, headers, body),
            begun,
            begun + timeout,
            self._first_byte_timeout,
            memory,
            self._rate_min,
            self._large,
            spills,
        )
        origin = target.origin
        if proxy is not None:
            origin, admit = origin._replace(proxy=proxy), anywhere
            observer = self._proxies.watch(origin, observer)
        connection = await self._connect(origin, order.deadline, admit, linked=linked)
        self._busy.add(connection)
        try:
            if sign is not None:
                order.request_bytes = with_lines(order.request_bytes, sign(target, method))
            exchange = await connection.exchange(order, ResponseReader(method, max_size, observer))
        except BaseException:
            # Also when the caller was cancelled: later bytes would be read as the next answer.
            connection.close()
            raise
        finally:
            self._busy.discard(connection)
        self._pool.put(connection)
        return exchange

    async def exchange(
        self,
        origin: Origin,
        url: str,
        request: bytes,
        reader: ExchangeReader,
        *,
        check: Callable[[Peer], None],
        timeout: float,
        admit: Admit = anywhere,
        linked: bool = False,
        memory: FetchMemory,
        spills: Spills | None = None,
    ) -> Exchange:
        """Make the one exchange of a connection, over TLS and in another protocol than HTTP.

        ``check`` is called with the server before ``request`` is sent, and may raise. The other
        arguments are as in `fetch`; a proxy is one of ``origin``.

        :raises FetchError: as of `fetch`
        :raises AddressBusy: as of `fetch`
        :raises Exception: whatever ``check`` raises, or an observer
        """
        begun = self._clock.time()
        order = ExchangeOrder(
            url,
            request,
            begun,
            begun + timeout,
            self._first_byte_timeout,
            memory,
            self._rate_min,
            self._large,
            spills,
        )
        if origin.proxy is not None:
            admit = anywhere
        connection = await self._connect(origin, order.deadline, admit, linked=linked)
        self._busy.add(connection)
        try:
            check(connection.peer)
            return await connection.exchange(order, reader)
        finally:
            self._busy.discard(connection)
            connection.close()

    async def permit(self, origin: Origin, timeout: float, admit: Admit, *, linked: bool) -> None:
        """Make the checks that `fetch` makes before it connects, for a request of another client.

        ``timeout`` is in seconds; ``admit`` and ``linked`` are as in `fetch`.

        :raises FetchError: the host has no address that may be connected to
        :raises AddressBusy: the request may not go to the host's address now
        """
        deadline = self._clock.time() + timeout
        address, *_ = await self._dialer.permitted(origin, deadline, linked=linked)
        if not admit(address):
            raise AddressBusy(address)

    async def _connect(
        self, origin: Origin, deadline: float, admit: Admit, *, linked: bool
    ) -> Connection:
        connection = self._pool.take(origin)
        if connection is not None:
            address = connection.peer.address
            if not admit(address):
                self._pool.put(connection)
                raise AddressBusy(address)
            return connection
        before = self._hung_up
        if origin.proxy is None:
            connection = await self._dialer.dial(origin, deadline, admit, linked=linked)
        else:
            connection = await self._proxies.dial(origin, origin.proxy, deadline, linked=linked)
        if self._hung_up != before:
            connection.close()
            raise ConnectionLost("closed by this side before the request was sent")
        return connection

    @cached_property
    def _proxies(self) -> ProxyDialer:
        from krowlspider.fetch.proxy.dial import ProxyDialer  # noqa: PLC0415 - few crawls use one

        return ProxyDialer(self._clock, self._dialer, self._connect_timeout)

    def hang_up(self) -> None:
        """Close every connection; exchanges in flight or connecting fail with ConnectionLost."""
        self._hung_up += 1
        for connection in list(self._busy):
            connection.close()
        self._pool.close()

    async def close(self) -> None:
        """Close every connection, and wait until the transports have closed their sockets."""
        self.hang_up()
        # Transports close their sockets on the next turn of the event loop.
        await asyncio.sleep(0)
