"""Opening a connection: name to addresses, past the guard, TCP, TLS."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from krowlspider.fetch.connection import Connection
from krowlspider.fetch.errors import (
    EXHAUSTED,
    AddressBusy,
    AddressForbidden,
    ConnectFailed,
    ConnectionReset,
    ConnectRefused,
    ConnectTimeout,
    FetchError,
    LocalExhausted,
    NetworkDown,
    PortForbidden,
    TLSFailed,
    TotalTimeout,
)
from krowlspider.fetch.exchange import Dialled
from krowlspider.fetch.ports import PORTS_MAX, AddressPorts
from krowlspider.fetch.slices import Slices
from krowlspider.fetch.tls import Channel
from krowlspider.urls.ports import BLOCKED

if TYPE_CHECKING:
    from krowlspider.fetch.dns import Resolver
    from krowlspider.fetch.guard import AddressGuard
    from krowlspider.fetch.loopclock import LoopClock
    from krowlspider.fetch.request import Origin

# A dead host with a long list of addresses must not hold a slot for each in turn.
ADDRESSES_TRIED = 3
# For TLS 1.2: all suites with AES or ChaCha20 and a certificate, those with forward secrecy first,
# on each build of Python alike; keys and signatures of any strength, as no certificate is judged
# either. None with DHE, as in browsers: the server chooses the modulus, and one of 10,000 bits
# takes over a second.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:RSA+AESGCM:RSA+AES:!aNULL:!eNULL:!aDSS:!PSK:!SRP:!AESCCM:@SECLEVEL=0"
# Servers from before RFC 5746 are talked to as well: SSL_OP_LEGACY_SERVER_CONNECT, which has a name from Python 3.12 on.
_LEGACY_SERVERS = 0x4
# What connect(2) says at once of this side's network.
_NETWORK_DOWN = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL})


def crawler_tls() -> ssl.SSLContext:
    """TLS that records who answered, and judges nobody: a page behind a bad certificate is a page."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= _LEGACY_SERVERS
    context.set_alpn_protocols(["http/1.1"])
    return context


# Whether a request may go to an address now.
Admit = Callable[[str], bool]


def anywhere(address: str) -> bool:
    """Room everywhere."""
    return True


class Dialer:
    """Opens connections. ``connect_timeout`` (s) is for TCP and TLS together, at each address, by
    ``clock``."""

    def __init__(
        self,
        *,
        clock: LoopClock,
        resolver: Resolver,
        guard: AddressGuard,
        connect_timeout: float,
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
        """A fresh connection to ``origin`` before ``deadline`` (of the clock), at an address that
        ``admit`` lets it to.

        ``linked`` says that the port was found by a link: only so many of them are asked at an
        address. The guard judges the very address that is connected to, so no second look-up can
        slip another past it. Raises FetchError: of several addresses, what befell the first;
        AddressBusy when there was room at none.
        """
        if origin.port in BLOCKED:
            raise PortForbidden(f"port {origin.port} is of another protocol")
        begun = self._clock.time()
        addresses = self._resolver.known(origin.host)
        if addresses is None:
            try:
                async with self._clock.timeout_at(deadline):
                    addresses = await self._resolver.resolve(origin.host)
            except TimeoutError as e:
                raise TotalTimeout(f"looking up {origin.host} took too long") from e
        name = self._clock.time() - begun
        permitted = [address for address in addresses if self._guard.permits(address)]
        if not permitted:
            raise AddressForbidden(
                f"{origin.host} is at {', '.join(addresses)}, which is not public"
            )
        if linked:
            permitted = self._with_room(permitted, origin.port)
        failure: FetchError | None = None
        for address in permitted[:ADDRESSES_TRIED]:
            if not admit(address):
                continue
            if linked:
                self._ports.add(address, origin.port)
            try:
                return await self._connect(origin, address, deadline, name)
            except (
                ConnectRefused,
                ConnectTimeout,
                ConnectionReset,
                ConnectFailed,
                NetworkDown,
            ) as e:
                failure = failure or e
        if failure is None:
            raise AddressBusy(permitted[0])
        try:
            raise failure
        finally:
            # It holds this frame.
            del failure

    def _with_room(self, addresses: list[str], port: int) -> list[str]:
        found = [address for address in addresses if self._ports.has_room(address, port)]
        if not found:
            raise PortForbidden(
                f"links have led to {PORTS_MAX} ports of {addresses[0]}, so port {port} is not asked"
            )
        return found

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
                raise TotalTimeout(f"connecting to {where} took too long") from e
            raise ConnectTimeout(f"no connection to {where} in time") from e
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
        channel = Channel(clock, self._tls, _server_name(origin.host), connection, self._slices)
        try:
            await loop.create_connection(lambda: channel, address, origin.port)
            await channel.secured
        except BaseException:
            channel.abort()
            # By this frame, what was raised would hold the channel, which holds it: 40 kB of OpenSSL's until the next
            # full collection.
            del channel
            raise
        connected = channel.connected
        connection.dialled = Dialled(name, connected - begun, self._clock.time() - connected)
        return connection


def connect_failure(error: OSError, address: str, *, secure: bool) -> type[FetchError]:
    """What an error of connecting to ``address``, of the handshake too where ``secure``, means."""
    if isinstance(error, ConnectionRefusedError):
        return ConnectRefused
    if isinstance(error, ssl.SSLError):
        return TLSFailed
    if isinstance(error, ConnectionError):
        # Past the refusal above, it is almost always the handshake that is cut short, where there is one.
        return TLSFailed if secure else ConnectionReset
    if error.errno in EXHAUSTED:
        return LocalExhausted
    if error.errno in _NETWORK_DOWN and ":" not in address and not _is_told(error):
        return NetworkDown
    return ConnectFailed


def _is_told(error: OSError) -> bool:
    """Whether a router on the way said so (ICMP), as each may of addresses that nobody has: asyncio
    words what connect(2) itself says otherwise."""
    return str(error.strerror).startswith("Connect call failed")


def _server_name(host: str) -> str:
    """What SNI is made from; OpenSSL sends none for an address.

    Raises TLSFailed for a name that SNI cannot carry, before there is a socket: asyncio would
    notice only after connecting, and leave that open.
    """
    name = host.rstrip(".")  # RFC 6066, section 3: without the root dot
    try:
        name.encode("idna")
    except UnicodeError as e:
        raise TLSFailed(f"{host}: not a name for TLS: {e}") from e
    return name
