"""The HTTP/1.1 client: one call, one exchange."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from krowlspider.fetch.connection import Connection, Order
from krowlspider.fetch.dial import Dialer, anywhere
from krowlspider.fetch.errors import AddressBusy, ConnectionLost
from krowlspider.fetch.memory import Held, Memory
from krowlspider.fetch.onebyone import OneByOne
from krowlspider.fetch.pool import Pool
from krowlspider.fetch.reader import ResponseReader
from krowlspider.fetch.request import build_request, split_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krowlspider.fetch.dial import Admit
    from krowlspider.fetch.dns import Resolver
    from krowlspider.fetch.exchange import Exchange, Observer
    from krowlspider.fetch.guard import AddressGuard
    from krowlspider.fetch.loopclock import LoopClock


class Client:
    """Fetches over kept-alive HTTP/1.1 connections. Times in seconds.

    ``connect_timeout`` holds for each address tried, TLS included; ``first_byte_timeout`` from the
    request sent; an answer that has begun is to come at ``rate_min`` bytes a second (0: at any
    rate); at most ``max_idle`` idle connections are kept, each for ``idle_timeout``. ``clock``
    counts all times but the last. It and the resolver are the caller's to close.
    """

    def __init__(
        self,
        *,
        clock: LoopClock,
        resolver: Resolver,
        guard: AddressGuard,
        connect_timeout: float,
        first_byte_timeout: float,
        idle_timeout: float,
        max_idle: int,
        rate_min: int = 0,
    ) -> None:
        self._clock = clock
        self._dialer = Dialer(
            clock=clock, resolver=resolver, guard=guard, connect_timeout=connect_timeout
        )
        self._pool = Pool(clock, max_idle=max_idle, idle_timeout=idle_timeout)
        self._first_byte_timeout = first_byte_timeout
        self._rate_min = rate_min
        self._large = OneByOne(clock.loop)
        self._busy: set[Connection] = set()
        # Times that `hang_up` was called.
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
        held: Held | None = None,
    ) -> Exchange:
        """Make one exchange within ``timeout`` s, its body at most ``max_size`` bytes as received.

        ``admit`` is asked whether the request may go to an address, before it does; ``linked`` is
        as of `Dialer.dial`. What is received is counted in ``held``, which stays the caller's.

        ``url`` is WHATWG-normalised. Redirects, cookies and content codings are the caller's.
        A kept-alive connection that dies is a ConnectionLost like any other: the server may have read the
        request, and the next one is to wait its turn.
        Raises FetchError (with the partial exchange once there was a head), AddressBusy when it may
        go to none of the host's addresses, ValueError for a request that cannot be written, and
        what ``observer`` raises.
        """
        begun = self._clock.time()
        deadline = begun + timeout
        target = split_target(url)
        request = build_request(target, method, headers, body)
        held = held or Held(Memory())
        order = Order(
            url,
            method,
            request,
            begun,
            deadline,
            self._first_byte_timeout,
            held,
            self._rate_min,
            self._large,
        )
        connection = self._pool.take(target.origin)
        if connection is not None and not admit(connection.address):
            self._pool.put(connection)
            raise AddressBusy(connection.address)
        if connection is None:
            before = self._hung_up
            connection = await self._dialer.dial(target.origin, deadline, admit, linked=linked)
            if self._hung_up != before:
                connection.close()
                raise ConnectionLost("closed by this side before the request was sent")
        return await self._on(connection, order, max_size, observer)

    def hang_up(self) -> None:
        """Close every connection; exchanges under way, and those that still connect, fail with ConnectionLost."""
        self._hung_up += 1
        for connection in list(self._busy):
            connection.close()
        self._pool.close()

    async def close(self) -> None:
        """Hang up."""
        self.hang_up()
        # Transports close their sockets on the loop's next turn.
        await asyncio.sleep(0)

    async def _on(
        self, connection: Connection, order: Order, max_size: int, observer: Observer | None
    ) -> Exchange:
        self._busy.add(connection)
        try:
            exchange = await connection.exchange(
                order, ResponseReader(order.method, max_size, observer)
            )
        except BaseException:
            # A cancelled caller too: what comes now would be read as the next answer.
            connection.close()
            raise
        finally:
            self._busy.discard(connection)
        self._pool.put(connection)
        return exchange
