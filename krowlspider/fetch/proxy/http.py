"""HTTP proxies: tunnels through them, and requests for http URLs that they pass on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from krowlspider.fetch.errors import ProxyDenied, ProxyFailed, ProxyRefused, TargetUnreached
from krowlspider.fetch.http.request import bracketed

if TYPE_CHECKING:
    import asyncio

    from krowlspider.fetch.exchange import Headers, Observer
    from krowlspider.fetch.http.request import Origin, Proxy

# Proxy Authentication Required: RFC 9110, section 15.5.8.
_DENIED = 407
# Payment Required, Too Many Requests: the proxy serves nobody now, whatever the target is.
_SPENT = frozenset({402, 429})
# A parameter of Proxy-Status: a token (RFC 9209, section 2.1.1).
_ERROR = re.compile(rb"; *error=([a-z_]{1,60})")
_ERROR_MAX = 60
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9]\d\d)(?: |\r)")


async def connect(
    reader: asyncio.StreamReader, transport: asyncio.Transport, origin: Origin, proxy: Proxy
) -> None:
    """Have an HTTP proxy open a tunnel to ``origin`` (RFC 9110, section 9.3.6).

    :raises FetchError: it does not
    :raises EOFError: it closed the connection
    """
    target = f"{bracketed(origin.host)}:{origin.port}"
    transport.write(
        b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n"
        % (target.encode(), target.encode(), _authorization_line(proxy))
    )
    head = await reader.readuntil(b"\r\n\r\n")
    found = _STATUS.match(head)
    if found is None:
        raise ProxyFailed(f"proxy {proxy.name} does not answer in HTTP")
    status = int(found[1])
    if status == _DENIED:
        raise _denied(proxy)
    if status in _SPENT:
        raise ProxyFailed(f"proxy {proxy.name} opens no connection (status {status} for CONNECT)")
    if status >= 500:
        raise TargetUnreached(
            f"proxy {proxy.name} does not reach {target} (status {status} for CONNECT)"
        )
    if not 200 <= status < 300:
        raise ProxyRefused(
            f"proxy {proxy.name} refuses to connect to {target} (status {status} for CONNECT)"
        )


class ForwardingTransport:
    """The transport of a connection to an HTTP proxy.

    It writes requests in absolute-form (RFC 9112, section 3.2.2), with the credentials of the
    proxy; each write is one request. The connection, and so the archive, has the requests in
    origin-form, as the origin sees them.
    """

    def __init__(self, transport: asyncio.Transport, origin: Origin, proxy: Proxy) -> None:
        self._transport = transport
        port = "" if origin.port == 80 else f":{origin.port}"
        self._base = f"http://{bracketed(origin.host)}{port}".encode()
        self._line = _authorization_line(proxy)
        self.abort = transport.abort
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, request: bytes) -> None:
        line, _, rest = request.partition(b"\r\n")
        verb, _, path = line.partition(b" ")
        self._transport.write(
            b"%b %b%b\r\n%b%b" % (verb, self._base, path, self._line, rest),
        )

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


class ForwardObserver:
    """Fails a fetch that the proxy itself answers; passes anything else on to ``observer``.

    Its own answers are 407, and those by whose Proxy-Status it did not reach the target (RFC 9209),
    or by Squid's X-Squid-Error.
    """

    def __init__(self, proxy: Proxy, observer: Observer | None) -> None:
        self._proxy = proxy
        self._observer = observer

    def headers(self, status: int, headers: Headers) -> None:
        if status == _DENIED:
            raise _denied(self._proxy)
        if status >= 500 and (why := _own_error(headers)):
            raise TargetUnreached(
                f"proxy {self._proxy.name} does not reach the host (status {status}, {why})"
            )
        if self._observer is not None:
            self._observer.headers(status, headers)

    def data(self, chunk: bytes) -> None:
        if self._observer is not None:
            self._observer.data(chunk)


def _authorization_line(proxy: Proxy) -> bytes:
    """Return the line of a Proxy-Authorization header; empty without credentials."""
    if not proxy.authorization:
        return b""
    return b"Proxy-Authorization: %b\r\n" % proxy.authorization


def _own_error(headers: Headers) -> str:
    """Return the error that a proxy names in its own answer; "" if it names none."""
    for name, value in headers:
        if name.lower() == b"proxy-status" and (found := _ERROR.search(value)):
            return found[1].decode("latin-1")
        if name.lower() == b"x-squid-error":
            return value[:_ERROR_MAX].decode("latin-1")
    return ""


def _denied(proxy: Proxy) -> ProxyDenied:
    """Return the error for an answer 407."""
    given = "refuses the credentials" if proxy.authorization else "demands credentials"
    return ProxyDenied(f"proxy {proxy.name} {given} (status {_DENIED})")
