"""Open a connection: resolve the name, check the addresses, then TCP and TLS."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.fetch import errors
from krowlspider.fetch.connection import Connection
from krowlspider.fetch.errors import Dialled, LoopClock
from krowlspider.fetch.guard import PORTS_MAX, AddressGuard, AddressPorts
from krowlspider.fetch.tcp import DELAY, AddressOrder, Race, Routes, connect_failure
from krowlspider.fetch.tls import Channel, Slices, crawler_tls, pinned_tls, server_name
from krowlspider.urls.canonical import BAD_PORTS

if TYPE_CHECKING:
    from ssl import SSLContext

    from krowlspider.fetch.http.head import Origin
    from krowlspider.fetch.resolver import Resolver

# Seconds after which an attempt is late at an address that connected before: it may be slow, and it
# lives.
REACHED_DELAY = 1.0
# Failures after which the next address of the host is tried.
_TRY_NEXT = (
    errors.ConnectRefused,
    errors.ConnectTimeout,
    errors.ConnectionReset,
    errors.ConnectFailed,
    errors.NetworkDown,
)


# Returns whether a request may go to an address now.
Admit = Callable[[str], bool]


def anywhere(address: str) -> bool:
    """Return True: a request may go to any address."""
    return True


class _Call(NamedTuple):
    """A connection to open. The name was looked up from ``begun`` to ``found``; these and
    ``deadline`` are times of the clock."""

    origin: Origin
    begun: float
    found: float
    deadline: float
    linked: bool


class Dialer:
    """Opens connections.

    ``connect_timeout`` is in seconds of ``clock``, for TCP and TLS together, at all addresses.
    """

    def __init__(
        self, *, clock: LoopClock, resolver: Resolver, guard: AddressGuard, connect_timeout: float
    ) -> None:
        self._clock = clock
        self._resolver = resolver
        self._guard = guard
        self._ports = AddressPorts()
        self._connect_timeout = connect_timeout
        self._tls = crawler_tls()
        self._slices = Slices(clock.loop)

    async def dial(
        self, origin: Origin, deadline: float, admit: Admit = anywhere, *, linked: bool = False
    ) -> Connection:
        """Return a new connection to ``origin``, at an address for which ``admit`` is true.

        ``deadline`` is a time of the clock. ``linked`` means that a link led to the port: of such
        ports only PORTS_MAX are requested at each address. The guard checks the very address that
        is connected to.

        :raises FetchError: dialling failed; of several addresses, the failure of the first
        :raises AddressBusy: ``admit`` was false for every address, or for the one that was reached
        """
        begun = self._clock.time()
        addresses = await self.permitted(origin, deadline, linked=linked)
        found = self._clock.time()
        for first in addresses:
            if admit(first):
                break
        else:
            raise errors.AddressBusy(addresses[0])
        # The addresses before it have no room.
        tried = addresses[addresses.index(first) :]
        connection = await self._connect(_Call(origin, begun, found, deadline, linked), tried)
        address = connection.peer.address
        if address != first and not admit(address):
            connection.close()
            raise errors.AddressBusy(address)
        return connection

    async def permitted(self, origin: Origin, deadline: float, *, linked: bool) -> list[str]:
        """Return the addresses of ``origin`` that may be connected to, at least one.

        :raises FetchError: there is none, or the look-up failed
        """
        host, port = origin.host, origin.port
        _check_port(port)
        addresses = self._resolver.known(host)
        permitted = self._permitted(addresses or [])
        if not permitted:
            addresses = await self._look_up(host, addresses, deadline)
            permitted = self._permitted(addresses)
        if not permitted:
            raise _forbidden(host, addresses or [])
        if not linked:
            return permitted
        found = [address for address in permitted if self._ports.has_room(address, port)]
        if not found:
            raise _ports_used_up(permitted[0], port)
        return found

    async def _look_up(self, host: str, known: list[str] | None, deadline: float) -> list[str]:
        """Return the addresses of a host of which none that is ``known`` is permitted.

        :raises FetchError: the look-up failed
        """
        # Two look-ups end by themselves before, so that no timer is needed.
        if deadline - self._clock.time() > 2 * self._resolver.timeout:
            return await self._addresses(host, known)
        try:
            async with self._clock.timeout_at(deadline):
                return await self._addresses(host, known)
        except TimeoutError as e:
            raise errors.TotalTimeout(f"looking up {host} took too long") from e

    async def _addresses(self, host: str, known: list[str] | None) -> list[str]:
        addresses = await self._resolver.resolve(host) if known is None else known
        if self._permitted(addresses):
            return addresses
        return addresses + await self._resolver.others(host)

    async def _others(self, call: _Call) -> list[str]:
        """Return the addresses of the family that was not asked for, which may be connected to."""
        host, port = call.origin.host, call.origin.port
        permitted = self._permitted(await self._resolver.others(host))
        if not call.linked:
            return permitted
        return [address for address in permitted if self._ports.has_room(address, port)]

    def _permitted(self, addresses: list[str]) -> list[str]:
        return [address for address in addresses if self._guard.permits(address)]

    def check_unresolved(self, origin: Origin, *, linked: bool) -> None:
        """Check a target that a proxy connects to, without a look-up.

        The guard judges an address, localhost, and a name whose addresses are known here. Of any
        other name only the proxy knows the address. ``linked`` is as in `dial`; the ports are
        counted by name.

        :raises AddressForbidden: the target may not be requested
        """
        host, port = origin.host, origin.port
        _check_port(port)
        try:
            addresses = self._resolver.known(host)
        except errors.NameFailed:
            addresses = None
        if addresses is not None and not self._permitted(addresses):
            raise _forbidden(host, addresses)
        if linked:
            if not self._ports.has_room(host, port):
                raise _ports_used_up(host, port)
            self._ports.add(host, port)

    async def _connect(self, call: _Call, addresses: list[str]) -> Connection:
        """Return a connection to the first of the addresses, or to others where that pays.

        :raises FetchError: there is none
        """
        host, resolver = call.origin.host, self._resolver
        limit = call.found + self._connect_timeout
        race = Race(
            self._clock,
            AddressOrder(addresses),
            partial(self._attempt, call),
            limit=min(limit, call.deadline),
            next_after=_TRY_NEXT,
            more=partial(self._others, call),
            discard=Connection.close,
        )
        reached = resolver.reached(host)
        try:
            connection = await race.run(REACHED_DELAY if addresses[0] == reached else DELAY)
        except TimeoutError as e:
            resolver.learn(host, "", race.order.taken)
            where = f"{addresses[0]} port {call.origin.port}"
            if call.deadline <= limit:
                raise errors.TotalTimeout(f"connecting to {where} took too long") from e
            raise errors.ConnectTimeout(f"no connection to {where} in time") from e
        except _TRY_NEXT:
            resolver.learn(host, "", race.order.taken)
            raise
        if race.winner != reached or race.failed:
            resolver.learn(host, race.winner, race.unreached)
        return connection

    async def _attempt(self, call: _Call, address: str, reached: Callable[[], None]) -> Connection:
        """Return a connection to an address; call ``reached`` once TCP is connected.

        :raises FetchError: there is none
        """
        clock, origin = self._clock, call.origin
        if call.linked:
            self._ports.add(address, origin.port)
        connection = Connection(clock, origin, address)
        channel = None if origin.scheme == "http" else self.secure(connection)
        try:
            protocol = channel or connection
            await clock.loop.create_connection(lambda: protocol, address, origin.port)
            reached()
            if channel is not None:
                await channel.secured
        except BaseException as e:
            if channel is None:
                connection.close()
            else:
                channel.abort()
            # The exception holds this frame and, through the channel, itself. That would keep 40 kB
            # of OpenSSL memory until the next full collection.
            del channel, protocol
            if isinstance(e, OSError):
                raise self._failure(e, call, address) from e
            raise
        connected = clock.time() if channel is None else channel.connected
        tls = 0.0 if channel is None else clock.time() - connected
        connection.dialled = Dialled(call.found - call.begun, connected - call.found, tls)
        return connection

    def _failure(self, error: OSError, call: _Call, address: str) -> errors.FetchError:
        where, secure = f"{address} port {call.origin.port}", call.origin.scheme != "http"
        return connect_failure(error, address, where, secure=secure, routes=self.routes)

    @property
    def routes(self) -> Routes:
        return self._resolver.routes

    def secure(self, connection: Connection) -> Channel:
        """Return the TLS of a connection to its origin, to be the protocol of a TCP transport.

        :raises TLSFailed: SNI cannot carry the host's name
        """
        name = server_name(connection.origin.host)
        context = self._tls if connection.origin.scheme == "https" else self._pinned_tls
        return Channel(self._clock, context, name, connection, self._slices)

    @cached_property
    def _pinned_tls(self) -> SSLContext:
        return pinned_tls()


def _check_port(port: int) -> None:
    if port in BAD_PORTS:
        raise errors.PortForbidden(f"port {port} is of another protocol")


def _forbidden(host: str, addresses: list[str]) -> errors.AddressForbidden:
    return errors.AddressForbidden(f"{host} is at {', '.join(addresses)}, which is not public")


def _ports_used_up(where: str, port: int) -> errors.PortForbidden:
    return errors.PortForbidden(
        f"links have led to {PORTS_MAX} ports of {where}, so port {port} is not asked"
    )
