"""Proxies: their URLs, and connections through HTTP and SOCKS5 proxies (RFC 1928, RFC 1929)."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes, urlsplit

from krowlspider.fetch.errors import (
    FetchError,
    Headers,
    Observer,
    ProxyDenied,
    ProxyFailed,
    ProxyInvalid,
    ProxyRefused,
    TargetUnreached,
)
from krowlspider.fetch.http.head import Origin, Proxy, bracketed

if TYPE_CHECKING:
    import asyncio


# With socks5 as with socks5h the proxy resolves the names of targets.
SCHEMES = frozenset({"http", "socks5", "socks5h"})
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# Proxies remembered. A crawl may rotate through many.
_KEPT = 1024


@lru_cache(maxsize=_KEPT)
def parse_proxy(url: str, authorization: bytes = b"") -> Proxy:
    """Return the proxy of a URL such as ``http://user:password@host:port``, or ``socks5://...``.

    A URL without a scheme is one of http, as in Scrapy. ``authorization`` is the value of a
    Proxy-Authorization header; credentials in the URL take precedence.

    :raises ProxyInvalid: the URL names no host or port, or another scheme; or ``authorization`` has
        control characters, or is not user and password, which SOCKS5 needs
    """
    text = url if "://" in url else f"http://{url.removeprefix('//')}"
    # Neither a log nor the archive may hold credentials.
    shown = text.partition("://")[0] + "://" + text.partition("://")[2].rpartition("@")[2]
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError:
        # Its text may have a part of the password.
        raise ProxyInvalid(
            f"proxy {shown!r} is no URL: write http://USER:PASSWORD@HOST:PORT, and in user and"
            " password %2F for /, %23 for #, %3F for ?"
        ) from None
    if parts.scheme not in SCHEMES:
        raise ProxyInvalid(
            f"proxy {shown!r} has the scheme {parts.scheme}, which is not one of"
            f" {', '.join(sorted(SCHEMES))}"
        )
    if not host or not port:
        raise ProxyInvalid(f"proxy {shown!r} has no host or no port: write http://HOST:PORT")
    if parts.username is not None:
        user, _, password = parts.netloc.rpartition("@")[0].partition(":")
        credentials = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
        authorization = b"Basic " + b64encode(credentials)
    if _CONTROL.search(authorization):
        raise ProxyInvalid(f"proxy {shown!r}: Proxy-Authorization has control characters")
    if parts.scheme != "http" and not _is_password(authorization):
        raise ProxyInvalid(f"proxy {shown!r} takes user and password, no other authorization")
    return Proxy(parts.scheme, host, port, authorization)


def _is_password(authorization: bytes) -> bool:
    """Return whether a header's value is empty, or user and password (RFC 7617)."""
    scheme, _, encoded = authorization.partition(b" ")
    try:
        return not authorization or (scheme == b"Basic" and b":" in b64decode(encoded))
    except ValueError:
        return False


# Proxy Authentication Required: RFC 9110, section 15.5.8.
_DENIED = 407
# Payment Required, Too Many Requests: the proxy serves nobody now, whatever the target is.
_SPENT = frozenset({402, 429})
# A parameter of Proxy-Status: a token (RFC 9209, section 2.1.1).
_ERROR = re.compile(rb"; *error=([a-z_]{1,60})")
_ERROR_MAX = 60
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9]\d\d)(?: |\r)")


async def connect_by_http(
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


async def connect_by_socks5(
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
