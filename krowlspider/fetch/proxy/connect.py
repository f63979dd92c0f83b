"""Tunnels through an HTTP proxy (RFC 9110, section 9.3.6)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from krowlspider.fetch.errors import ProxyFailed, ProxyRefused, TargetUnreached
from krowlspider.fetch.http.request import bracketed
from krowlspider.fetch.proxy.forward import DENIED, authorization_line, denied

if TYPE_CHECKING:
    import asyncio

    from krowlspider.fetch.http.request import Origin, Proxy

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9]\d\d)(?: |\r)")


async def connect(
    reader: asyncio.StreamReader, transport: asyncio.Transport, origin: Origin, proxy: Proxy
) -> None:
    """Have an HTTP proxy connect to ``origin``.

    :raises FetchError: it does not
    :raises EOFError: it closed the connection
    """
    target = f"{bracketed(origin.host)}:{origin.port}"
    transport.write(
        b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n"
        % (target.encode(), target.encode(), authorization_line(proxy))
    )
    head = await reader.readuntil(b"\r\n\r\n")
    found = _STATUS.match(head)
    if found is None:
        raise ProxyFailed(f"proxy {proxy.name} does not answer in HTTP")
    status = int(found[1])
    if status == DENIED:
        raise denied(proxy)
    if status >= 500:
        raise TargetUnreached(
            f"proxy {proxy.name} does not reach {target} (status {status} for CONNECT)"
        )
    if not 200 <= status < 300:
        raise ProxyRefused(
            f"proxy {proxy.name} refuses to connect to {target} (status {status} for CONNECT)"
        )
