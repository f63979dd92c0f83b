"""Connections through a SOCKS5 proxy (RFC 1928), with user and password (RFC 1929)."""

from __future__ import annotations

from base64 import b64decode
from ipaddress import ip_address
from typing import TYPE_CHECKING

from krowlspider.fetch.errors import (
    FetchError,
    ProxyDenied,
    ProxyFailed,
    ProxyRefused,
    TargetUnreached,
)

if TYPE_CHECKING:
    import asyncio

    from krowlspider.fetch.http.request import Origin, Proxy

_NO_CREDENTIALS, _PASSWORD, _NONE_ACCEPTABLE = 0, 2, 0xFF
_IPV4, _NAME, _IPV6 = 1, 3, 4
# The replies of RFC 1928, section 6, other than success.
_REPLIES = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "TTL expired",
    7: "command not supported",
    8: "address type not supported",
}
# Replies that concern the proxy, not the target.
_OWN = frozenset({2, 7, 8})


async def connect(
    reader: asyncio.StreamReader, transport: asyncio.Transport, origin: Origin, proxy: Proxy
) -> None:
    """Have a SOCKS5 proxy connect to ``origin``, whose name it resolves.

    :raises FetchError: it does not
    :raises EOFError: it closed the connection
    """
    target = _target(origin, proxy)
    credentials = _credentials(proxy)
    methods = bytes([_NO_CREDENTIALS, _PASSWORD] if credentials else [_NO_CREDENTIALS])
    transport.write(bytes([5, len(methods)]) + methods)
    version, method = await reader.readexactly(2)
    if version != 5 or method not in (*methods, _NONE_ACCEPTABLE):
        raise ProxyFailed(f"proxy {proxy.name} does not answer in SOCKS5")
    if method == _NONE_ACCEPTABLE:
        raise ProxyDenied(f"proxy {proxy.name} demands other credentials")
    if method == _PASSWORD:
        transport.write(credentials)
        if (await reader.readexactly(2))[1]:
            raise ProxyDenied(f"proxy {proxy.name} refuses the credentials")
    transport.write(bytes([5, 1, 0]) + target + origin.port.to_bytes(2))
    version, reply, _, kind = await reader.readexactly(4)
    if version != 5:
        raise ProxyFailed(f"proxy {proxy.name} does not answer in SOCKS5")
    if reply:
        raise _failure(reply, origin, proxy)
    # The address that the proxy sends from, and its port.
    size = {_IPV4: 4, _IPV6: 16}.get(kind)
    await reader.readexactly(2 + ((await reader.readexactly(1))[0] if size is None else size))


def _target(origin: Origin, proxy: Proxy) -> bytes:
    """Return type and address of a host, as they stand in a request.

    :raises ProxyFailed: the name of the host is over 255 bytes
    """
    try:
        address = ip_address(origin.host)
    except ValueError:
        name = origin.host.encode()
        if len(name) > 0xFF:
            raise ProxyFailed(f"proxy {proxy.name}: the host's name is over 255 bytes") from None
        return bytes([_NAME, len(name)]) + name
    return bytes([_IPV4 if address.version == 4 else _IPV6]) + address.packed


def _credentials(proxy: Proxy) -> bytes:
    """Return the request for user and password; empty without them.

    :raises ProxyDenied: one of them is over 255 bytes
    """
    if not proxy.authorization:
        return b""
    user, _, password = b64decode(proxy.authorization.removeprefix(b"Basic ")).partition(b":")
    if max(len(user), len(password)) > 0xFF:
        raise ProxyDenied(f"proxy {proxy.name}: user or password is over 255 bytes")
    return bytes([1, len(user)]) + user + bytes([len(password)]) + password


def _failure(reply: int, origin: Origin, proxy: Proxy) -> FetchError:
    """Return the error for a reply other than success."""
    why = _REPLIES.get(reply, f"reply {reply}")
    target = f"{origin.host} port {origin.port}"
    if reply in _OWN:
        return ProxyRefused(f"proxy {proxy.name} refuses to connect to {target}: {why}")
    return TargetUnreached(f"proxy {proxy.name} does not reach {target}: {why}")
