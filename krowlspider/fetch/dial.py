"""Open a connection: resolve the name, check the addresses, then TCP and TLS."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from krowlspider.fetch import errors
from krowlspider.fetch.connection import Connection
from krowlspider.fetch.exchange import Dialled
from krowlspider.fetch.guard import PORTS_MAX, AddressPorts
from krowlspider.fetch.tls.channel import Channel
from krowlspider.fetch.tls.work import Slices
from krowlspider.urls.ports import BLOCKED

if TYPE_CHECKING:
    from krowlspider.fetch.dns.resolver import Resolver
    from krowlspider.fetch.guard import AddressGuard
    from krowlspider.fetch.http.request import Origin
    from krowlspider.fetch.loop_clock import LoopClock

# Addresses tried for each host: a dead host with many must not hold a slot for each in turn.
ADDRESSES_TRIED = 3
# TLS 1.2: all AES and ChaCha20 suites with a certificate, forward secrecy first, any key size, as
# no certificate is verified. No DHE: the server's modulus may cost a second of CPU.
_CIPHERS = (
    "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:RSA+AESGCM:RSA+AES"
    ":!aNULL:!eNULL:!aDSS:!PSK:!SRP:!AESCCM:@SECLEVEL=0"
)
# SSL_OP_LEGACY_SERVER_CONNECT accepts servers from before RFC 5746. Python names it from 3.12.
_LEGACY_SERVERS = 0x4
# Failures after which the next address of the host is tried.
_TRY_NEXT = (
    errors.ConnectRefused,
    errors.ConnectTimeout,
    errors.ConnectionReset,
    errors.ConnectFailed,
    errors.NetworkDown,
)
# Errors of connect(2) about this machine's network.
_NETWORK_DOWN = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL})


def crawler_tls() -> ssl.SSLContext:
    """Return a TLS context that verifies no certificate, as pages behind bad ones count too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= _LEGACY_SERVERS
    context.set_alpn_protocols(["http/1.1"])
    return context


# Returns whether a request may go to an address now.
Admit = Callable[[str], bool]


def anywhere(address: str) -> bool:
    """Return True: a request may go to any address."""
    return True


class Dialer:
    """Opens connections.

    ``connect_timeout`` is in seconds of ``clock``, for TCP and TLS together, at each address.
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
        :raises AddressBusy: ``admit`` was false for every address
        """
        begun = self._clock.time()
        addresses = await self.permitted(origin, deadline, linked=linked)
        name = self._clock.time() - begun
        failure: errors.FetchError | None = None
        for address in addresses[:ADDRESSES_TRIED]:
            if not admit(address):
                continue
            if linked:
                self._ports.add(address, origin.port)
            try:
                return await self._connect(origin, address, deadline, name)
            except _TRY_NEXT as e:
                failure = failure or e
        if failure is None:
            raise errors.AddressBusy(addresses[0])
        try:
            raise failure
        finally:
            # The exception holds this frame, so the local name would make a reference cycle.
            del failure

    async def permitted(self, origin: Origin, deadline: float, *, linked: bool) -> list[str]:
        """Return the addresses of ``origin`` that may be connected to, at least one.

        :raises FetchError: there is none, or the look-up failed
        """
        host, port = origin.host, origin.port
        _check_port(port)
        addresses = self._resolver.known(host)
        if addresses is None:
            try:
                async with self._clock.timeout_at(deadline):
                    addresses = await self._resolver.resolve(host)
            except TimeoutError as e:
                raise errors.TotalTimeout(f"looking up {host} took too long") from e
        permitted = self._public(host, addresses)
        if not linked:
            return permitted
        found = [address for address in permitted if self._ports.has_room(address, port)]
        if not found:
            raise _ports_used_up(permitted[0], port)
        return found

    def _public(self, host: str, addresses: list[str]) -> list[str]:
        permitted = [address for address in addresses if self._guard.permits(address)]
        if not permitted:
            raise errors.AddressForbidden(
                f"{host} is at {', '.join(addresses)}, which is not public"
            )
        return permitted

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
        if addresses is not None:
            self._public(host, addresses)
        if linked:
            if not self._ports.has_room(host, port):
                raise _ports_used_up(host, port)
            self._ports.add(host, port)

    async def _connect(
        self, origin: Origin, address: str, deadline: float, name: float
    ) -> Connection:
        limit = self._clock.time() + self._connect_timeout
        try:
            async with self._clock.timeout_at(min(limit, deadline)):
                return await self._open(origin, address, name)
        except TimeoutError as e:
            where = f"{address} port {origin.port}"
            if deadline <= limit:
                raise errors.TotalTimeout(f"connecting to {where} took too long") from e
            raise errors.ConnectTimeout(f"no connection to {where} in time") from e
        except OSError as e:
            failure = connect_failure(e, address, secure=origin.scheme == "https")
            raise failure(f"{address} port {origin.port}: {e}") from e

    async def _open(self, origin: Origin, address: str, name: float) -> Connection:
        clock, loop = self._clock, self._clock.loop
        begun = self._clock.time()
        if origin.scheme == "http":
            _, connection = await loop.create_connection(
                lambda: Connection(clock, origin, address), address, origin.port
            )
            connection.dialled = Dialled(name, self._clock.time() - begun)
            return connection
        connection = Connection(clock, origin, address)
        channel = self.secure(connection)
        try:
            await loop.create_connection(lambda: channel, address, origin.port)
            await channel.secured
        except BaseException:
            channel.abort()
            # The exception holds this frame and, through the channel, itself. That would keep 40 kB
            # of OpenSSL memory until the next full collection.
            del channel
            raise
        connected = channel.connected
        connection.dialled = Dialled(name, connected - begun, self._clock.time() - connected)
        return connection

    def secure(self, connection: Connection) -> Channel:
        """Return the TLS of a connection to its origin, to be the protocol of a TCP transport.

        :raises TLSFailed: SNI cannot carry the host's name
        """
        name = _server_name(connection.origin.host)
        return Channel(self._clock, self._tls, name, connection, self._slices)


def _check_port(port: int) -> None:
    if port in BLOCKED:
        raise errors.PortForbidden(f"port {port} is of another protocol")


def _ports_used_up(where: str, port: int) -> errors.PortForbidden:
    return errors.PortForbidden(
        f"links have led to {PORTS_MAX} ports of {where}, so port {port} is not asked"
    )


def connect_failure(error: OSError, address: str, *, secure: bool) -> type[errors.FetchError]:
    """Return the error class for an OSError raised while connecting, ``secure`` or not."""
    if isinstance(error, ConnectionRefusedError):
        return errors.ConnectRefused
    if isinstance(error, ssl.SSLError):
        return errors.TLSFailed
    if isinstance(error, ConnectionError):
        # It is no refusal here, so with TLS it is almost always a handshake cut short.
        return errors.TLSFailed if secure else errors.ConnectionReset
    if error.errno in errors.EXHAUSTED:
        return errors.LocalExhausted
    # A router on the way may report the error (ICMP), for an address that nobody has. asyncio words
    # an error of connect(2) itself differently.
    by_router = str(error.strerror).startswith("Connect call failed")
    if error.errno in _NETWORK_DOWN and ":" not in address and not by_router:
        return errors.NetworkDown
    return errors.ConnectFailed


def _server_name(host: str) -> str:
    """Return the name for SNI; OpenSSL sends none for an address.

    :raises TLSFailed: SNI cannot carry the name
    """
    # Checked before there is a socket: asyncio would notice only after connecting, and leave it
    # open.
    name = host.rstrip(".")  # RFC 6066, section 3: without the root dot
    try:
        name.encode("idna")
    except UnicodeError as e:
        raise errors.TLSFailed(f"{host}: not a name for TLS: {e}") from e
    return name
