"""Opening a connection: name to addresses, past the guard, TCP, TLS."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from krowlspider.fetch.connection import Connection
from krowlspider.fetch.errors import (
    AddressForbidden,
    ConnectFailed,
    ConnectRefused,
    ConnectTimeout,
    FetchError,
    TLSFailed,
    TotalTimeout,
)

if TYPE_CHECKING:
    from krowlspider.fetch.dns import Resolver
    from krowlspider.fetch.guard import AddressGuard
    from krowlspider.fetch.request import Origin

# A dead host with a long list of addresses must not hold a slot for each in turn.
ADDRESSES_TRIED = 3


def crawler_tls() -> ssl.SSLContext:
    """TLS that records who answered, and judges nobody: a page behind a bad certificate is a page."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


class Dialer:
    """Opens connections. ``connect_timeout`` (s) is for TCP and TLS together, at each address."""

    def __init__(self, *, resolver: Resolver, guard: AddressGuard, connect_timeout: float) -> None:
        self._resolver = resolver
        self._guard = guard
        self._connect_timeout = connect_timeout
        self._tls = crawler_tls()

    async def dial(self, origin: Origin, deadline: float) -> Connection:
        """A fresh connection to ``origin`` before ``deadline`` (loop time).

        The guard judges the very address that is connected to, so no second look-up can slip
        another past it. Raises FetchError.
        """
        try:
            async with asyncio.timeout_at(deadline):
                addresses = await self._resolver.resolve(origin.host)
        except TimeoutError as e:
            raise TotalTimeout(f"looking up {origin.host} took too long") from e
        permitted = [address for address in addresses if self._guard.permits(address)]
        if not permitted:
            raise AddressForbidden(f"{origin.host} is at {addresses}: not a public address")
        failure: FetchError | None = None
        for address in permitted[:ADDRESSES_TRIED]:
            try:
                return await self._connect(origin, address, deadline)
            except (ConnectRefused, ConnectTimeout, ConnectFailed) as e:
                failure = e
        assert failure is not None
        raise failure

    async def _connect(self, origin: Origin, address: str, deadline: float) -> Connection:
        loop = asyncio.get_running_loop()
        limit = loop.time() + self._connect_timeout
        where = f"{address} port {origin.port}"
        try:
            async with asyncio.timeout_at(min(limit, deadline)):
                return await self._open(loop, origin, address)
        except TimeoutError as e:
            if deadline <= limit:
                raise TotalTimeout(f"connecting to {where} took too long") from e
            raise ConnectTimeout(f"no connection to {where} in time") from e
        except ConnectionRefusedError as e:
            raise ConnectRefused(f"{where} refused the connection") from e
        except ssl.SSLError as e:
            raise TLSFailed(f"{where}: {e}") from e
        except ConnectionError as e:
            # Past the refusal above, only a handshake is left to be cut short.
            raise (TLSFailed if origin.scheme == "https" else ConnectFailed)(f"{where}: {e}") from e
        except OSError as e:
            raise ConnectFailed(f"{where}: {e}") from e

    async def _open(
        self, loop: asyncio.AbstractEventLoop, origin: Origin, address: str
    ) -> Connection:
        secure = origin.scheme == "https"
        server_name = _server_name(origin.host) if secure else None
        _, connection = await loop.create_connection(
            lambda: Connection(loop, origin, address),
            address,
            origin.port,
            ssl=self._tls if secure else None,
            server_hostname=server_name,
        )
        return connection


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
